// A wait counts only time in which it could listen: a process that was stopped (SIGSTOP, a
// debugger, a suspended machine) and goes on must not accuse its peers of the silence.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/comm/message_fabric.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;

// One rank of two. Its peer's message is there after `looks` sleeps, of which the first takes
// `nap`, whatever was asked for.
class NappingTransport final : public Transport {
 public:
  NappingTransport(milliseconds nap, int looks) : nap_(nap), looks_(looks) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  absl::StatusOr<TransportGroup> AddGroup(const TransportGroupSpec&) override {
    return TransportGroup{};
  }
  void RemoveGroup(int) override {}
  Request Post(const Message&) override { return {0}; }
  bool Done(Request) override { return looks_ <= 0; }
  absl::Status Poll() override { return absl::OkStatus(); }
  size_t max_message_bytes() const override { return size_t{1} << 30; }
  uint64_t Epoch() const override { return 0; }
  void Sleep(uint64_t, int, std::chrono::microseconds) override {
    std::this_thread::sleep_for(std::exchange(nap_, milliseconds(1)));
    --looks_;
  }
  void Wake(int) override {}
  void Abort(const absl::Status&) override {}
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  milliseconds nap_;
  int looks_;
};

absl::Status ReceiveWithin(milliseconds deadline, milliseconds nap, int looks) {
  MessageFabric fabric(std::make_unique<NappingTransport>(nap, looks), {});
  const int ranks[] = {0, 1};
  auto group = fabric.Group(ranks, "pair", {});
  if (!group.ok()) return group.status();
  const auto stream = tensor::MakeInlineStream();
  std::vector<std::byte> data(64);
  return (*group)->WaitHost((*group)->Recv(data, 1, 0, *stream), deadline);
}

TEST_CASE("a rank that did not run does not count the time against its peer") {
  CHECK(ReceiveWithin(milliseconds(400), milliseconds(900), 2).ok());
  // Awake all the time it does.
  CHECK(absl::IsDeadlineExceeded(ReceiveWithin(milliseconds(100), milliseconds(1), 1000000)));
}

}  // namespace
}  // namespace trireme::comm
