// The shared cases over ranks as threads: both modes, small staging, split messages, and the
// window.
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/comm/local/local_fabric.h"
#include "tests/runtime/comm/cases.h"
#include "tests/sanitizer.h"

namespace trireme::comm {
namespace {

void RequireOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

std::vector<LocalOptions> Variants() {
  LocalOptions eager;
  eager.fabric.operations = 300;
  LocalOptions rendezvous = eager;
  rendezvous.mode = LocalMode::kRendezvous;
  rendezvous.max_message_bytes = 100000;
  LocalOptions small = eager;
  small.fabric.staging_bytes = 64 << 10;
  LocalOptions window = eager;
  window.fabric.window_bytes = 64 << 10;
  return {eager, rendezvous, small, window};
}

template <typename Case>
void RunOnAll(const std::vector<int>& rank_counts, Case run) {
  for (const LocalOptions& options : Variants()) {
    for (const int ranks : rank_counts) {
      RequireOk(RunRanks(
          ranks,
          [&](Fabric& fabric) -> absl::Status {
            ASSIGN_OR_RETURN(auto comm, fabric.Group(All(fabric.size()), "all"));
            return run(*comm);
          },
          options));
    }
  }
}

TEST_CASE("collectives equal the straight sum") {
  const std::vector<int> sizes = tests::kThreadSanitizer ? std::vector{3, 4}
                                 : tests::kSanitizer     ? std::vector{1, 3, 8}
                                                         : std::vector{1, 2, 3, 4, 5, 6, 8};
  RunOnAll(sizes, [](Communicator& comm) { return CheckCollectives(comm); });
}

TEST_CASE("sums have the same bits on every rank and in every run") {
  RunOnAll({2, 3, 5, 8}, [](Communicator& comm) { return CheckBits(comm); });
}

TEST_CASE("many messages in flight arrive in order per channel") {
  RunOnAll({1, 3}, [](Communicator& comm) { return CheckMessages(comm); });
}

}  // namespace
}  // namespace trireme::comm
