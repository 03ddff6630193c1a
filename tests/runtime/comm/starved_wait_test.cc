// A wait counts only time in which it could listen: a process that was stopped (SIGSTOP, a
// debugger, a suspended machine) and goes on must not accuse its peers of the silence. A wait that
// lasts is told of.
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/comm/local/local_fabric.h"
#include "runtime/comm/message_fabric.h"
#include "tests/runtime/comm/cases.h"

namespace trireme::comm {
namespace {

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
  absl::StatusOr<std::shared_ptr<NodeMemory>> Allocate(size_t) override {
    return absl::UnimplementedError("no node memory");
  }
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

TEST_CASE("a wait that lasts names whom it is for until it is over") {
  LocalHub hub(3);
  auto fabrics = std::array{hub.Rank(0), hub.Rank(1), hub.Rank(2)};
  Told told[3];
  for (size_t r = 0; r < 3; ++r) fabrics[r]->WatchWaits(&told[r]);
  bool good[3] = {};
  const auto sum = [&](size_t r) {
    const auto group = *fabrics[r]->Group(All(3), "world");
    const auto stream = tensor::MakeInlineStream();
    float value = 1;
    const Ticket ticket = group->AllReduce(&value, 1, tensor::DType::kF32, ReduceOp::kSum, *stream);
    good[r] = group->WaitHost(ticket, kDeadline).ok() && value == 3;
  };
  // Ranks 0 and 1 come to a sum, rank 2 stays away until both have told whom they wait for.
  std::vector<std::thread> early;
  for (size_t r = 0; r < 2; ++r) early.emplace_back(sum, r);
  const auto end = std::chrono::steady_clock::now() + kDeadline / 2;
  while ((told[0].peer_ != 2 || told[1].peer_ != 2) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  sum(2);
  for (std::thread& thread : early) thread.join();
  for (size_t r = 0; r < 2; ++r) {
    CAPTURE(r);
    CHECK(good[r]);
    CHECK(told[r].wait_.peer == 2);
    CHECK(told[r].wait_.awaited == 1);
    CHECK((told[r].wait_.collective && told[r].group_ == "world"));
    CHECK(told[r].over_ > 0);
  }
  CHECK(good[2]);
}

TEST_CASE("a message that does not come names its sender and short waits tell nothing") {
  MessageFabric fabric(std::make_unique<NappingTransport>(milliseconds(1), 1500), {});
  const int ranks[] = {0, 1};
  const auto group = *fabric.Group(ranks, "pair", {});
  const auto stream = tensor::MakeInlineStream();
  std::vector<std::byte> data(64);
  Told told;
  fabric.WatchWaits(&told);
  CHECK(group->WaitHost(group->Recv(data, 1, 0, *stream), kDeadline).ok());
  CHECK(told.times_ > 0);
  CHECK((told.wait_.peer == 1 && told.wait_.awaited == 1 && !told.wait_.collective));
  CHECK(told.group_ == "pair");
  CHECK(told.over_ == 1);
  // Nor does time in which the rank did not run.
  Told quiet;
  MessageFabric stopped(std::make_unique<NappingTransport>(milliseconds(1500), 5), {});
  const auto other = *stopped.Group(ranks, "pair", {});
  stopped.WatchWaits(&quiet);
  CHECK(other->WaitHost(other->Recv(data, 1, 0, *stream), kDeadline).ok());
  CHECK((quiet.times_ == 0 && quiet.over_ == 0));
}

}  // namespace
}  // namespace trireme::comm
