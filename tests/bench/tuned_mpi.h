// Open MPI as somebody who knows it sets it for large sums on one machine: AllReduce by its
// segmented ring, with segments of 1 MiB. A second communicator has these settings, so that both
// can be measured in turn; the first keeps the default, as the switch alone changes nothing.
#pragma once

#include <cstdlib>

#include "runtime/comm/mpi/mpi_api.h"

namespace trireme::comm {

// Before MPI is initialised: else the settings of TunedWorld are not looked at.
inline void AllowTuning() { setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0); }

inline bool SetControl(const char* name, int value) {
  int index = 0, count = 0;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) return false;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return false;
  const bool set = MPI_T_cvar_write(handle, &value) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  return set;
}

// Collective. MPI_COMM_NULL where this MPI has no such settings.
inline MPI_Comm TunedWorld() {
  MPI_Comm tuned = MPI_COMM_NULL;
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return tuned;
  int set = SetControl("coll_tuned_allreduce_algorithm", 5) &&
                    SetControl("coll_tuned_allreduce_algorithm_segmentsize", 1 << 20)
                ? 1
                : 0;
  MPI_Allreduce(MPI_IN_PLACE, &set, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (set == 1) MPI_Comm_dup(MPI_COMM_WORLD, &tuned);
  SetControl("coll_tuned_allreduce_algorithm", 0);
  MPI_T_finalize();
  return tuned;
}

}  // namespace trireme::comm
