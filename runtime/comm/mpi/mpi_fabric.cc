// Initialisation of MPI, and what it must give: a thread level, and tags for all channels.
#include "runtime/comm/mpi/mpi_fabric.h"

#include <cstdlib>
#include <optional>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/channels.h"
#include "runtime/comm/mpi/mpi_api.h"
#include "runtime/comm/mpi/mpi_transport.h"

namespace trireme::comm {

using base::Text;

absl::StatusOr<std::unique_ptr<Fabric>> ConnectMpi(int* argc, char*** argv, MpiOptions options) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0)
    return absl::FailedPreconditionError("MPI is initialised already; ConnectMpi is called once");
  // Serialized is enough: every call is made under the fabric's lock (docs/adr/0003).
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
    return absl::UnavailableError("MPI_Init_thread failed; start the program under mpirun or srun");
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    return absl::FailedPreconditionError(Text("MPI gives thread level ", provided,
                                              ", MPI_THREAD_SERIALIZED (", MPI_THREAD_SERIALIZED,
                                              ") is needed"));
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int* tag_bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_bound, &found);
  RETURN_IF_ERROR(CheckTags(found != 0 ? std::optional<int64_t>(*tag_bound) : std::nullopt));
  MPI_Comm control = MPI_COMM_NULL;
  if (MPI_Comm_dup(MPI_COMM_WORLD, &control) != MPI_SUCCESS) {
    return absl::UnavailableError("MPI_Comm_dup of the world failed");
  }
  MPI_Comm_set_errhandler(control, MPI_ERRORS_RETURN);
  return std::make_unique<MessageFabric>(
      std::make_unique<MpiTransport>(control, options.setup_deadline), options.fabric);
}

void AbortJob(int code) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace trireme::comm
