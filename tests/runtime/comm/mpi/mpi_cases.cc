// The shared cases over real MPI, in groups of all ranks and of the upper half. By argument:
// through the window where there is one (none), by messages alone (--messages), or with a rank that
// stays silent (--silent) or comes late (--late).
#include <cstdio>
#include <thread>
#include <vector>

#include "runtime/comm/mpi/mpi_fabric.h"
#include "tests/runtime/comm/coded_cases.h"

namespace trireme::comm {
namespace {

absl::Status RunCases(Communicator& comm) {
  RETURN_IF_ERROR(base::Annotate(CheckCollectives(comm), "collectives"));
  RETURN_IF_ERROR(base::Annotate(CheckBits(comm), "bits"));
  RETURN_IF_ERROR(base::Annotate(CheckCoded(comm), "coded"));
  return base::Annotate(CheckMessages(comm), "messages");
}

absl::Status RunAll(Fabric& fabric) {
  {
    ASSIGN_OR_RETURN(auto all, fabric.Group(All(fabric.size()), "all"));
    RETURN_IF_ERROR(RunCases(*all));
    std::vector<int> last;
    for (int r = fabric.size() / 2; r < fabric.size(); ++r) last.push_back(r);
    if (fabric.rank() >= fabric.size() / 2) {
      ASSIGN_OR_RETURN(auto half, fabric.Group(last, "half"));
      RETURN_IF_ERROR(RunCases(*half));
    }
  }
  return fabric.Close();
}

// Rank 0 stays silent; the others must name it. Buffers are static: after a failure MPI may still
// write to them.
absl::Status ExpectSilenceNamed(Fabric& fabric) {
  static int32_t buffer[100000] = {};
  ASSIGN_OR_RETURN(auto all, fabric.Group(All(fabric.size()), "quiet"));
  if (fabric.rank() == 0) {
    // Ended by the others' AbortJob; the sleep only bounds a failing run.
    std::this_thread::sleep_for(std::chrono::seconds(20));
    return absl::InternalError("nobody ended the job");
  }
  auto stream = tensor::MakeInlineStream();
  const Ticket ticket =
      all->AllReduce(buffer, 100000, tensor::DType::kI32, ReduceOp::kSum, *stream);
  const absl::Status status = all->WaitHost(ticket, std::chrono::milliseconds(50));
  const bool named =
      status.message().find("AllReduce #1 on group 'quiet'") != absl::string_view::npos &&
      status.message().find("waiting for rank") != absl::string_view::npos;
  if (status.code() != absl::StatusCode::kDeadlineExceeded || !named) {
    return absl::InternalError("a silent peer gave: " + status.ToString());
  }
  if (all->WaitHost(all->Send({}, 0, 0, *stream), kDeadline).ok()) {
    return absl::InternalError("a poisoned fabric takes calls");
  }
  std::fprintf(stderr, "silence was named\n");
  AbortJob(7);
}

// Rank 0 comes later from sum to sum, until all others have told that they wait for it.
absl::Status ExpectLateTold(Fabric& fabric) {
  Told told;
  fabric.WatchWaits(&told);
  {
    ASSIGN_OR_RETURN(auto all, fabric.Group(All(fabric.size()), "late"));
    auto stream = tensor::MakeInlineStream();
    int32_t knowing = 0;
    for (int round = 1; round <= 5 && knowing < fabric.size() - 1; ++round) {
      if (fabric.rank() == 0) std::this_thread::sleep_for(milliseconds(1500) * round);
      RETURN_IF_ERROR(CheckAllReduce<int32_t>(*all, 8));
      knowing = told.peer_ == 0 && told.group_ == "late" ? 1 : 0;
      RETURN_IF_ERROR(all->WaitHost(
          all->AllReduce(&knowing, 1, tensor::DType::kI32, ReduceOp::kSum, *stream), kDeadline));
    }
    RETURN_IF_ERROR(Expect(knowing >= fabric.size() - 1, "a late rank was not told of"));
    RETURN_IF_ERROR(Expect(fabric.rank() == 0 || told.over_ > 0, "the wait was never over"));
  }
  fabric.WatchWaits(nullptr);
  return fabric.Close();
}

int Run(int argc, char** argv) {
  MpiOptions options;
  options.fabric.coding.collective_bytes = kCodingBytes;
  options.fabric.coding.messages = 4;
  const bool plain = argc > 1 && std::string_view(argv[1]) == "--messages";
  const bool silent = argc > 1 && std::string_view(argv[1]) == "--silent";
  const bool late = argc > 1 && std::string_view(argv[1]) == "--late";
  if (plain) options.fabric.window_bytes = 0;
  auto fabric = ConnectMpi(&argc, &argv, options);
  absl::Status status = fabric.status();
  if (status.ok()) {
    status = silent ? ExpectSilenceNamed(**fabric)
             : late ? ExpectLateTold(**fabric)
                    : RunAll(**fabric);
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    AbortJob(1);
  }
  return 0;
}

}  // namespace
}  // namespace trireme::comm

int main(int argc, char** argv) { return trireme::comm::Run(argc, argv); }
