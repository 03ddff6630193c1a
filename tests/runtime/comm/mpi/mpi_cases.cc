// The shared cases over real MPI, in groups of all ranks and of the upper half. By argument:
// through the window where there is one (none), by messages alone (--messages), with a rank that
// stays silent (--silent, or --silent-in-memory in a collective in node memory) or comes late
// (--late), or with an MPI of so many tags (--tags=N; 0: its own).
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/comm/channels.h"
#include "runtime/comm/mpi/mpi_api.h"
#include "runtime/comm/mpi/mpi_fabric.h"
#include "runtime/comm/mpi/shared_memory.h"
#include "tests/runtime/comm/bf16_cases.h"
#include "tests/runtime/comm/coded_cases.h"
#include "tests/runtime/comm/mpi/tag_bound.h"

namespace trireme::comm {
namespace {

absl::Status RunCases(Communicator& comm) {
  RETURN_IF_ERROR(base::Annotate(CheckCollectives(comm), "collectives"));
  RETURN_IF_ERROR(base::Annotate(CheckBits(comm), "bits"));
  RETURN_IF_ERROR(base::Annotate(CheckCoded(comm), "coded"));
  for (const int64_t count : {0, 1, 5001, 200003})
    RETURN_IF_ERROR(base::Annotate(CheckBf16Transfer(comm, count), "bf16"));
  return base::Annotate(CheckMessages(comm), "messages");
}

// The ranks of these tests share a machine: each must reach all the others' memory.
absl::Status ExpectReached(Fabric& fabric, Communicator& all, const NodeMemory& memory) {
  RETURN_IF_ERROR(Expect(memory.own().size() == kNodeBytes && memory.own()[9] == std::byte{0} &&
                             reinterpret_cast<uintptr_t>(memory.own().data()) % (2 << 20) == 0,
                         "not the memory asked for"));
  memory.own()[9] = static_cast<std::byte>(fabric.rank() + 3);
  RETURN_IF_ERROR(CheckAllReduce<int32_t>(all, 1));  // all have written
  for (int q = 0; q < fabric.size(); ++q) {
    const std::byte* const theirs = memory.Of(q);
    RETURN_IF_ERROR(Expect(theirs != nullptr && theirs[9] == static_cast<std::byte>(q + 3),
                           "another rank's memory is not reached"));
  }
  return CheckAllReduce<int32_t>(all, 1);  // all have read
}

// The system gives the last rank no memory to share: it has some of its own, and all is as right.
absl::Status CheckNothingToShare(Fabric& fabric, Communicator& all, const NodeMemory& other) {
  const bool refused = fabric.rank() == fabric.size() - 1;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  if (refused) setrlimit(RLIMIT_FSIZE, &none);
  const auto memory = fabric.Allocate(kNodeBytes);
  if (refused) setrlimit(RLIMIT_FSIZE, &before);
  RETURN_IF_ERROR(memory.status());
  RETURN_IF_ERROR(Expect((*memory)->own().size() == kNodeBytes, "not the memory asked for"));
  RETURN_IF_ERROR(Expect(
      ((*memory)->Of(fabric.size() - 1) == nullptr) && (refused || (*memory)->Of(0) != nullptr),
      "what is not shared is reached"));
  return base::Annotate(CheckNodeMemory(all, **memory, other), "memory that is not shared");
}

absl::Status RunAll(Fabric& fabric) {
  {
    ASSIGN_OR_RETURN(auto all, fabric.Group(All(fabric.size()), "all"));
    RETURN_IF_ERROR(RunCases(*all));
    ASSIGN_OR_RETURN(const auto first, fabric.Allocate(kNodeBytes));
    ASSIGN_OR_RETURN(const auto second, fabric.Allocate(kNodeBytes));
    RETURN_IF_ERROR(ExpectReached(fabric, *all, *first));
    RETURN_IF_ERROR(base::Annotate(CheckNodeMemory(*all, *first, *second), "node memory"));
    RETURN_IF_ERROR(CheckNothingToShare(fabric, *all, *first));
    std::vector<int> last;
    for (int r = fabric.size() / 2; r < fabric.size(); ++r) last.push_back(r);
    if (fabric.rank() >= fabric.size() / 2) {
      ASSIGN_OR_RETURN(auto half, fabric.Group(last, "half"));
      RETURN_IF_ERROR(RunCases(*half));
      RETURN_IF_ERROR(base::Annotate(CheckNodeMemory(*half, *first, *second), "node memory"));
    }
  }
  return fabric.Close();
}

// Of `memory`, in this process's page table: by /proc/self/smaps.
size_t MappedKb(std::span<const std::byte> memory) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool found = false;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0, end = 0;
    size_t kb = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      found = begin == reinterpret_cast<uintptr_t>(memory.data());
    } else if (found && std::sscanf(line.c_str(), "Rss: %zu kB", &kb) == 1) {
      return kb;
    }
  }
  return SIZE_MAX;
}

// Memory that a process has made outlives it where another has mapped it, and takes none of this
// process's until it is touched: of a full machine's ranks it sums with few. Before MPI is there,
// which does not like forks.
absl::Status ExpectMemoryOutlivesMaker() {
  constexpr size_t kBytes = 5 << 20;
  int to_parent[2] = {};
  if (pipe(to_parent) != 0) return absl::InternalError("pipe");
  const pid_t maker = fork();
  if (maker == 0) {
    auto made = SharedMemory::Make(kBytes);
    if (!made.ok()) _exit(1);
    made->span()[kBytes - 1] = std::byte{42};
    const SharedMemoryAddress address = made->address();
    if (write(to_parent[1], &address, sizeof(address)) != sizeof(address)) _exit(1);
    pause();
    _exit(1);
  }
  SharedMemoryAddress address;
  const bool told = read(to_parent[0], &address, sizeof(address)) == sizeof(address);
  auto opened = SharedMemory::Open(address);
  SharedMemoryAddress forged = address;
  forged.token[1] ^= 1;
  const bool forgery_opened = SharedMemory::Open(forged).ok();
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
  close(to_parent[0]);
  close(to_parent[1]);
  RETURN_IF_ERROR(Expect(told, "the maker did not tell of its memory"));
  RETURN_IF_ERROR(opened.status());
  RETURN_IF_ERROR(Expect(!forgery_opened, "a wrong token was taken"));
  const std::span<std::byte> memory = opened->span();
  RETURN_IF_ERROR(Expect(MappedKb(memory) < kBytes / 2048, "memory is mapped before its time"));
  RETURN_IF_ERROR(Expect(memory[kBytes - 1] == std::byte{42}, "what the maker wrote is gone"));
  for (size_t i = 0; i < kBytes; ++i) memory[i] = static_cast<std::byte>(i);
  RETURN_IF_ERROR(Expect(memory[77777] == static_cast<std::byte>(77777), "not writable"));
  return Expect(!SharedMemory::Open(address).ok(), "a dead maker's memory was opened");
}

// Rank 0 stays silent; the others must name it. Buffers are static: after a failure MPI may still
// write to them.
absl::Status ExpectSilenceNamed(Fabric& fabric, bool in_node_memory) {
  static int32_t private_buffer[100000] = {};
  int32_t* buffer = private_buffer;
  ASSIGN_OR_RETURN(const auto memory, fabric.Allocate(sizeof(private_buffer)));
  if (in_node_memory) buffer = reinterpret_cast<int32_t*>(memory->own().data());
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

// The borders of the channels as tags: the callers' last, coded and plain, and collectives until
// their channels begin again.
absl::Status ExpectTagsKept(Fabric& fabric) {
  int* most = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
  RETURN_IF_ERROR(Expect(found != 0 && static_cast<int>(kLastChannel) <= *most,
                         "more channels than MPI has tags"));
  {
    ASSIGN_OR_RETURN(auto all, fabric.Group(All(fabric.size()), "tags"));
    RETURN_IF_ERROR(RunCases(*all));
    auto stream = tensor::MakeInlineStream();
    const int n = fabric.size();
    const std::vector<float> out(3000, static_cast<float>(fabric.rank()));
    std::vector<float> in(out.size());
    Coding coding;
    coding.message_bound = {compress::BoundMode::kAbsolute, 0.1};
    for (const uint32_t channel : {0U, kCallerChannels - 1}) {
      for (const bool coded : {false, true}) {
        const OperationOptions options(*stream, coded ? &coding : nullptr);
        const int left = (fabric.rank() + n - 1) % n;
        const Ticket sent =
            all->Send(std::as_bytes(std::span(out)), (fabric.rank() + 1) % n, channel, options);
        RETURN_IF_ERROR(all->WaitHost(
            all->Recv(std::as_writable_bytes(std::span(in)), left, channel, options), kDeadline));
        RETURN_IF_ERROR(all->WaitHost(sent, kDeadline));
        RETURN_IF_ERROR(Expect(std::fabs(in[7] - static_cast<float>(left)) < 0.2F, "a message"));
      }
    }
    RETURN_IF_ERROR(Expect(LargestTagSeen() == static_cast<int>(kLastChannel),
                           "the last channel was not the largest tag"));
    for (uint32_t number = 0; number < kCollectiveChannelCount + 3; ++number)
      RETURN_IF_ERROR(CheckAllReduce<int32_t>(*all, 2));
    RETURN_IF_ERROR(Expect(LargestTagSeen() == static_cast<int>(kLastChannel), "a larger tag"));
  }
  return fabric.Close();
}

int Run(int argc, char** argv) {
  MpiOptions options;
  options.fabric.coding.collective_bytes = kCodingBytes;
  options.fabric.coding.messages = 4;
  const bool plain = argc > 1 && std::string_view(argv[1]) == "--messages";
  const bool in_node_memory = argc > 1 && std::string_view(argv[1]) == "--silent-in-memory";
  const bool silent = in_node_memory || (argc > 1 && std::string_view(argv[1]) == "--silent");
  const bool late = argc > 1 && std::string_view(argv[1]) == "--late";
  constexpr std::string_view kTags = "--tags=";
  const std::string_view first = argc > 1 ? argv[1] : "";
  const bool tags = first.starts_with(kTags);
  if (tags) BoundTags(std::atoi(argv[1] + kTags.size()));
  if (plain || tags) options.fabric.window_bytes = 0;
  if (const absl::Status outlived = ExpectMemoryOutlivesMaker(); !outlived.ok()) {
    std::fprintf(stderr, "%s\n", outlived.ToString().c_str());
    return 1;
  }
  auto fabric = ConnectMpi(&argc, &argv, options);
  absl::Status status = fabric.status();
  if (status.ok()) {
    status = silent ? ExpectSilenceNamed(**fabric, in_node_memory)
             : late ? ExpectLateTold(**fabric)
             : tags ? ExpectTagsKept(**fabric)
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
