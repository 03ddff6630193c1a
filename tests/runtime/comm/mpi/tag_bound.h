// An MPI with fewer tags: the program's own MPI_Comm_get_attr, MPI_Isend and MPI_Irecv, which stand
// before the library's (that is what MPI's profiling interface is for). They say and keep a bound
// of tags, as Open MPI over UCX (2^23 - 1) or the standard's least (32,767) do.
#pragma once

namespace trireme::comm {

// From here on; 0: the library's own. Before MPI is initialised.
void BoundTags(int largest);
// Largest tag that any message has carried.
int LargestTagSeen();

}  // namespace trireme::comm
