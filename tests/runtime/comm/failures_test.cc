// Failures: silence, abort, drop, kill, bad calls. Each wait must end, and say who was waited for.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/channels.h"
#include "runtime/comm/faulty.h"
#include "runtime/comm/group_communicator.h"
#include "runtime/comm/local/local_fabric.h"
#include "tests/runtime/comm/cases.h"

namespace trireme::comm {
namespace {

using Catch::Contains;

LocalOptions Rendezvous() {
  LocalOptions options;
  options.mode = LocalMode::kRendezvous;
  return options;
}

TEST_CASE("a silent peer is named, and the fabric stays poisoned") {
  for (const size_t window_bytes : {size_t{0}, size_t{64} << 10}) {
    for (const int64_t count : {int64_t{8}, int64_t{100000}}) {
      LocalOptions options;
      options.fabric.window_bytes = window_bytes;
      LocalHub hub(3, options);
      auto fabric = hub.Rank(1);
      const std::vector<int> pair = {1, 2};
      auto comm = *fabric->Group(pair, "tensor");
      auto other = *fabric->Group(All(3), "world");
      auto stream = tensor::MakeInlineStream();
      std::vector<float> data(static_cast<size_t>(count));
      const Ticket ticket =
          comm->AllReduce(data.data(), count, tensor::DType::kF32, ReduceOp::kSum, *stream);
      CHECK_FALSE(comm->Test(ticket));
      const absl::Status status = comm->WaitHost(ticket, milliseconds(20));
      CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
      CHECK_THAT(std::string(status.message()),
                 Contains("AllReduce #1 on group 'tensor' (ranks 1,2): no progress for 20 ms, "
                          "waiting for rank 2"));
      CHECK(comm->Test(ticket));
      CHECK(comm->status() == status);
      CHECK(other->status() == status);
      CHECK(other->WaitHost(other->Send({}, 0, 0, *stream), kDeadline) == status);
    }
  }
}

TEST_CASE("a message about many ranks stays short, one about few names each") {
  const std::vector<int> few = {1, 2, 40};
  CHECK(NameRanks(few) == "1,2,40");
  CHECK(NameRanks(All(16)) == "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15");
  CHECK(NameRanks(All(17)) == "0,1 ... 16, 17 ranks");
  CHECK(NameRanks(All(3072)) == "0,1 ... 3071, 3072 ranks");
  LocalHub hub(300);
  auto fabric = hub.Rank(0);
  auto comm = *fabric->Group(All(300), "world");
  auto stream = tensor::MakeInlineStream();
  std::vector<double> data(100000);
  const Ticket ticket =
      comm->AllReduce(data.data(), 100000, tensor::DType::kF64, ReduceOp::kSum, *stream);
  const std::string message(comm->WaitHost(ticket, milliseconds(20)).message());
  CHECK_THAT(message, Contains("group 'world' (ranks 0,1 ... 299, 300 ranks)") &&
                          Contains("waiting for rank"));
  CHECK(message.size() < 200);
}

TEST_CASE("a message nobody takes names peer and channel") {
  LocalHub hub(2, Rendezvous());
  auto fabric = hub.Rank(0);
  auto comm = *fabric->Group(All(2), "pipe");
  auto stream = tensor::MakeInlineStream();
  const int value = 1;
  const Ticket ticket = comm->Send(std::as_bytes(std::span(&value, 1)), 1, 7, *stream);
  const absl::Status status = comm->WaitHost(ticket, milliseconds(10));
  CHECK_THAT(std::string(status.message()),
             Contains("Send #1 of 4 bytes on channel 7 of group 'pipe' (ranks 0,1)") &&
                 Contains("waiting for rank 1"));
}

TEST_CASE("rendezvous: a send completes only once its receive is posted, eager at once") {
  for (const bool eager : {false, true}) {
    LocalHub hub(2, eager ? LocalOptions{} : Rendezvous());
    auto first = hub.Rank(0), second = hub.Rank(1);
    auto from = *first->Group(All(2), "pipe"), to = *second->Group(All(2), "pipe");
    auto stream = tensor::MakeInlineStream();
    int value = 5, got = 0;
    const Ticket sent = from->Send(std::as_bytes(std::span(&value, 1)), 1, 0, *stream);
    CHECK(from->Test(sent) == eager);
    if (eager) value = 6;  // the buffer is the caller's again
    const Ticket received = to->Recv(std::as_writable_bytes(std::span(&got, 1)), 0, 0, *stream);
    CHECK(to->Test(received));
    CHECK(from->Test(sent));
    CHECK(got == 5);
  }
}

TEST_CASE("Abort ends the waits of the rank and of its peers, also inside a send") {
  std::atomic<Communicator*> target{nullptr};
  std::thread watchdog([&] {
    while (target.load() == nullptr) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(5));
    target.load()->Abort(absl::CancelledError("stopped by the watchdog"));
  });
  std::atomic<int> leaving{0};
  const auto statuses = RunRanks(
      3,
      [&](Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, fabric.Group(All(3), "all"));
        auto stream = tensor::MakeInlineStream();
        std::vector<std::byte> data(100000);
        // Nobody receives.
        const Ticket ticket = comm->Send(data, (fabric.rank() + 1) % 3, 0, *stream);
        if (fabric.rank() == 1) target.store(comm.get());
        const absl::Status status = comm->WaitHost(ticket, kDeadline);
        if (fabric.rank() == 1) watchdog.join();
        ++leaving;
        return status;
      },
      Rendezvous());
  CHECK(statuses[1].code() == absl::StatusCode::kCancelled);
  for (const int r : {0, 2}) {
    CHECK(statuses[static_cast<size_t>(r)].code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(statuses[static_cast<size_t>(r)].message()),
               Contains("lost rank 1: stopped by the watchdog"));
  }
}

TEST_CASE("a rank whose function fails does not leave the others waiting") {
  const auto statuses = RunRanks(4, [](Fabric& fabric) -> absl::Status {
    if (fabric.rank() == 2) return absl::NotFoundError("no such file");
    ASSIGN_OR_RETURN(auto comm, fabric.Group(All(4), "all"));
    auto stream = tensor::MakeInlineStream();
    float one = 1;
    return comm->WaitHost(comm->AllReduce(&one, 1, tensor::DType::kF32, ReduceOp::kSum, *stream),
                          kDeadline);
  });
  CHECK(statuses[2].code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(statuses[0].message()), Contains("lost rank 2: no such file"));
}

// Rank 0 sends three numbers to rank 1, whose fabric or own has the faults; returns what rank 1
// got, or its status.
absl::StatusOr<std::vector<int>> ThreeNumbers(std::vector<Fault> faults_of_sender) {
  LocalHub hub(2);
  auto sender = MakeFaulty(hub.Rank(0), std::move(faults_of_sender));
  auto receiver = hub.Rank(1);
  auto from = *sender->Group(All(2), "pipe"), to = *receiver->Group(All(2), "pipe");
  auto stream = tensor::MakeInlineStream();
  for (int k = 1; k <= 3; ++k) {
    (void)from->WaitHost(from->Send(std::as_bytes(std::span(&k, 1)), 1, 0, *stream), kDeadline);
  }
  std::vector<int> got(3);
  for (int& k : got) {
    const Ticket ticket = to->Recv(std::as_writable_bytes(std::span(&k, 1)), 0, 0, *stream);
    RETURN_IF_ERROR(to->WaitHost(ticket, milliseconds(20)));
  }
  return got;
}

TEST_CASE("Faulty delays, drops and kills at the stated operation") {
  CHECK(*ThreeNumbers({}) == std::vector<int>{1, 2, 3});
  Fault delay;
  delay.operation = 2;
  delay.delay = milliseconds(1);
  CHECK(*ThreeNumbers({delay}) == std::vector<int>{1, 2, 3});
  Fault drop;
  drop.kind = Fault::Kind::kDrop;
  drop.operation = 2;
  CHECK(ThreeNumbers({drop}).status().code() == absl::StatusCode::kDeadlineExceeded);
  int killed = 0;
  Fault kill;
  kill.kind = Fault::Kind::kKill;
  kill.every = 2;
  kill.kill = [&] { ++killed; };
  CHECK(ThreeNumbers({kill}).ok());
  CHECK(killed == 2);
}

TEST_CASE("bad calls are refused with the fault and the fix") {
  const auto message = [](const std::function<Ticket(Communicator&, tensor::Stream&)>& call) {
    LocalOptions options;
    options.fabric.operations = 4;
    LocalHub hub(2, options);
    auto fabric = hub.Rank(0);
    auto comm = *fabric->Group(All(2), "g");
    auto stream = tensor::MakeInlineStream();
    return std::string(comm->WaitHost(call(*comm, *stream), kDeadline).message());
  };
  static int64_t data[8] = {};
  static const std::vector<int64_t> offsets = {0, 4};
  CHECK_THAT(message([](auto& c, auto& s) { return c.Send({}, 2, 0, s); }),
             Contains("rank 2") && Contains("0 to 1"));
  CHECK_THAT(message([](auto& c, auto& s) { return c.Recv({}, 1, kCallerChannels, s); }),
             Contains("channel"));
  CHECK_THAT(message([](auto& c, auto& s) { return c.Broadcast({}, -1, s); }), Contains("root -1"));
  CHECK_THAT(message([](auto& c, auto& s) {
               return c.AllReduce(data, 8, tensor::DType::kU8, ReduceOp::kSum, s);
             }),
             Contains("u8 cannot be summed"));
  CHECK_THAT(message([](auto& c, auto& s) {
               return c.AllGather({data, offsets, tensor::DType::kF32}, s);
             }),
             Contains("2 offsets, expected 3"));
  CHECK_THAT(message([](auto& c, auto& s) {
               for (int i = 0; i < 4; ++i) (void)c.Recv({}, 1, 0, s);
               return c.Recv({}, 1, 0, s);
             }),
             Contains("4 operations in flight"));

  LocalHub hub(3);
  auto fabric = hub.Rank(0);
  const std::vector<int> descending = {1, 0}, without = {1, 2}, outside = {0, 3};
  CHECK_THAT(std::string(fabric->Group(descending, "x").status().message()), Contains("ascend"));
  CHECK_THAT(std::string(fabric->Group(without, "x").status().message()),
             Contains("rank 0, which is not in it"));
  CHECK_THAT(std::string(fabric->Group(outside, "x").status().message()), Contains("ranks 0 to 2"));
}

TEST_CASE("messages of different lengths fail on both sides") {
  const auto statuses = RunRanks(2, [](Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto comm, fabric.Group(All(2), "pipe"));
    auto stream = tensor::MakeInlineStream();
    std::vector<std::byte> data(fabric.rank() == 0 ? 24 : 16);
    const Ticket ticket =
        fabric.rank() == 0 ? comm->Send(data, 1, 3, *stream) : comm->Recv(data, 0, 3, *stream);
    RETURN_IF_ERROR(comm->WaitHost(ticket, kDeadline));
    return comm->WaitHost(comm->Recv(data, 1 - fabric.rank(), 4, *stream), kDeadline);
  });
  for (const absl::Status& status : statuses) {
    CHECK_THAT(std::string(status.message()), Contains("24 bytes") && Contains("16 bytes"));
  }
}

TEST_CASE("Close waits for all ranks, and refuses while groups live") {
  const auto statuses = RunRanks(3, [](Fabric& fabric) -> absl::Status {
    {
      ASSIGN_OR_RETURN(auto comm, fabric.Group(All(3), "all"));
      if (fabric.Close().code() != absl::StatusCode::kFailedPrecondition)
        return absl::InternalError("closed");
    }
    return fabric.Close();
  });
  for (const absl::Status& status : statuses) CHECK(status.ok());
}

}  // namespace
}  // namespace trireme::comm
