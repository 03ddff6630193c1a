// ConnectMpi: ranks as MPI processes. Only MPI_Isend, MPI_Irecv and MPI_Testsome once connected, so
// no call can hang in a dead peer: deadlines stand above. One MPI communicator per group, channels
// are tags. Groups on one machine also share memory, where the larger collectives run.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/message_fabric.h"

namespace trireme::comm {

struct MpiOptions {
  FabricOptions fabric = {.window_bytes = size_t{512} << 10};
  // Of Group and Close: how long to wait for the other ranks to come.
  std::chrono::milliseconds setup_deadline{60000};
};

// MPI_Init_thread, once per process; the arguments are those of main. Close runs MPI_Finalize;
// without it (after a failure) the process must end by AbortJob or a non-zero exit, and buffers of
// operations in flight stay valid until then. FailedPrecondition if MPI gives too little.
absl::StatusOr<std::unique_ptr<Fabric>> ConnectMpi(int* argc, char*** argv,
                                                   MpiOptions options = {});

// Ends all ranks of the job with `code`, without waiting for any of them.
[[noreturn]] void AbortJob(int code);

}  // namespace trireme::comm
