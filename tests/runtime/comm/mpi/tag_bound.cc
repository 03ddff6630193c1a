#include "tests/runtime/comm/mpi/tag_bound.h"

#include <algorithm>

#include "runtime/comm/mpi/mpi_api.h"

namespace trireme::comm {
namespace {

int bound = 0;
int largest_seen = 0;

// Called under the fabric's lock, as MPI is.
bool MayCarry(int tag) {
  largest_seen = std::max(largest_seen, tag);
  return bound == 0 || tag <= bound;
}

}  // namespace

void BoundTags(int largest) { bound = largest; }
int LargestTagSeen() { return largest_seen; }

extern "C" {

int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* found) {
  const int code = PMPI_Comm_get_attr(comm, key, value, found);
  if (key == MPI_TAG_UB && bound > 0) *static_cast<int**>(value) = &bound;
  return code;
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (!MayCarry(tag)) return MPI_ERR_TAG;
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (!MayCarry(tag)) return MPI_ERR_TAG;
  return PMPI_Irecv(data, count, type, peer, tag, comm, request);
}

}  // extern "C"

}  // namespace trireme::comm
