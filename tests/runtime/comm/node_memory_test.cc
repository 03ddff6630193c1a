// Collectives in node memory over ranks as threads: the bits of private memory, wherever a rank's
// buffers lie, and failures while others are at work in it.
#include "runtime/comm/node_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "tests/runtime/comm/cases.h"
#include "tests/sanitizer.h"

namespace trireme::comm {
namespace {

using Catch::Contains;

LocalOptions WithWindow() {
  LocalOptions options;
  options.fabric.window_bytes = 64 << 10;
  return options;
}

constexpr int64_t kLarge = tests::kThreadSanitizer ? 17011 : 100003;

void RequireEachOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

TEST_CASE("node memory gives the bits of private memory, also where a rank's data lie elsewhere") {
  const std::vector<int> sizes =
      tests::kThreadSanitizer ? std::vector{2, 3} : std::vector{1, 2, 3, 5};
  for (const LocalOptions& options : {WithWindow(), LocalOptions{}}) {
    for (const int ranks : sizes) {
      RequireEachOk(RunRanks(
          ranks,
          [&](Fabric& fabric) -> absl::Status {
            ASSIGN_OR_RETURN(auto comm, fabric.Group(All(ranks), "all"));
            ASSIGN_OR_RETURN(const auto first, fabric.Allocate(kNodeBytes));
            ASSIGN_OR_RETURN(const auto second, fabric.Allocate(kNodeBytes));
            RETURN_IF_ERROR(CheckNodeMemory(*comm, *first, *second, kLarge));
            if (fabric.rank() == 0) return absl::OkStatus();
            // A group of some.
            std::vector<int> upper;
            for (int r = 1; r < ranks; ++r) upper.push_back(r);
            ASSIGN_OR_RETURN(auto some, fabric.Group(upper, "some"));
            return CheckNodeMemory(*some, *first, *second, kLarge);
          },
          options));
    }
  }
}

// A machine of many cores: the window of ConnectMpi is as large for each rank, however many they
// are. By messages, a ring would begin elsewhere and lose none of the ones.
TEST_CASE("node memory serves groups of as many ranks as a machine has") {
  const std::vector<int> sizes =
      tests::kThreadSanitizer ? std::vector{65} : std::vector{64, 65, 130};
  for (const int ranks : sizes) {
    LocalOptions options;
    options.fabric.window_bytes = 512 << 10;
    RequireEachOk(RunRanks(
        ranks,
        [&](Fabric& fabric) -> absl::Status {
          constexpr int64_t kCount = 32 << 10;
          ASSIGN_OR_RETURN(auto comm, fabric.Group(All(ranks), "all"));
          RETURN_IF_ERROR(Expect(comm->SumsInWindow(), "sums go by messages"));
          ASSIGN_OR_RETURN(const auto memory, fabric.Allocate(kCount * sizeof(float)));
          auto* const data = reinterpret_cast<float*>(memory->own().data());
          const int rank = fabric.rank();
          const float own = rank == 0 ? 1e9F : rank == ranks - 1 ? -1e9F : 1.0F;
          std::fill_n(data, kCount, own);
          auto stream = tensor::MakeInlineStream();
          RETURN_IF_ERROR(comm->WaitHost(
              comm->AllReduce(data, kCount, tensor::DType::kF32, ReduceOp::kSum, *stream),
              kDeadline));
          return Expect(std::count(data, data + kCount, 0.0F) == kCount, "another order of ranks");
        },
        options));
  }
}

TEST_CASE("each rank has as much node memory as it asked for, zero-filled, and sees the others'") {
  RequireEachOk(RunRanks(3, [](Fabric& fabric) -> absl::Status {
    const auto r = static_cast<size_t>(fabric.rank());
    ASSIGN_OR_RETURN(auto comm, fabric.Group(All(3), "all"));
    for (int round = 0; round < 70; ++round) {  // more than are kept by number
      ASSIGN_OR_RETURN(const auto memory, fabric.Allocate(1000 * r));
      RETURN_IF_ERROR(Expect(memory->own().size() == 1000 * r, "another size"));
      RETURN_IF_ERROR(Expect(std::count(memory->own().begin(), memory->own().end(), std::byte{0}) ==
                                 std::ssize(memory->own()),
                             "not zero"));
      if (r > 0) memory->own()[7] = static_cast<std::byte>(r + 3);
      RETURN_IF_ERROR(CheckAllReduce<int32_t>(*comm, 1));  // all have written
      for (int q = 1; q < 3; ++q)
        RETURN_IF_ERROR(Expect(memory->Of(q)[7] == static_cast<std::byte>(q + 3), "not theirs"));
      RETURN_IF_ERROR(CheckAllReduce<int32_t>(*comm, 1));  // all have read
    }
    return absl::OkStatus();
  }));
}

TEST_CASE("an AllGather of more than caches hold is whole") {
  RequireEachOk(RunRanks(
      2,
      [](Fabric& fabric) -> absl::Status {
        constexpr int64_t kCount = 3 << 20;
        ASSIGN_OR_RETURN(auto comm, fabric.Group(All(2), "all"));
        ASSIGN_OR_RETURN(const auto memory, fabric.Allocate(kCount * sizeof(int32_t)));
        auto* const data = reinterpret_cast<int32_t*>(memory->own().data());
        const std::vector<int64_t> offsets = {0, kCount / 2 + 3, kCount};
        const auto r = static_cast<size_t>(fabric.rank());
        for (int64_t i = offsets[r]; i < offsets[r + 1]; ++i) data[i] = static_cast<int32_t>(7 * i);
        auto stream = tensor::MakeInlineStream();
        RETURN_IF_ERROR(comm->WaitHost(
            comm->AllGather({data, offsets, tensor::DType::kI32}, *stream), kDeadline));
        int64_t wrong = 0;
        for (int64_t i = 0; i < kCount; ++i) wrong += data[i] == 7 * i ? 0 : 1;
        return Expect(wrong == 0, "not all of it came");
      },
      WithWindow()));
}

// The one rank's stream is behind: its sum starts when the other has long made memory, which is no
// reason to go another way than the other's did.
TEST_CASE("what was issued before the first node memory was made goes the same way on all ranks") {
  RequireEachOk(RunRanks(
      2,
      [](Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, fabric.Group(All(2), "all"));
        auto stream = tensor::MakeThreadStream({.queue_capacity = 4});
        std::vector<float> data(50000, 1.5F);
        std::atomic<bool> made = false;
        if (fabric.rank() == 1) {
          stream->Issue(tensor::Task([&made] {
            while (!made) std::this_thread::sleep_for(std::chrono::microseconds(100));
          }));
        }
        const Ticket ticket =
            comm->AllReduce(data.data(), 50000, tensor::DType::kF32, ReduceOp::kSum, *stream);
        const auto memory = fabric.Allocate(1000);
        made = true;
        RETURN_IF_ERROR(memory.status());
        RETURN_IF_ERROR(comm->WaitHost(ticket, kDeadline));
        return Expect(std::count(data.begin(), data.end(), 3.0F) == 50000, "not the sum");
      },
      WithWindow()));
}

// A rank's part of ten bytes; those of ranks below `reached` are mapped here too.
class TenBytes final : public NodeMemory {
 public:
  explicit TenBytes(int reached) : reached_(reached) {}
  std::span<std::byte> own() const override { return bytes_; }
  std::byte* Of(int rank) const override { return rank < reached_ ? bytes_.data() : nullptr; }

 private:
  mutable std::array<std::byte, 10> bytes_{};
  const int reached_;
};

TEST_CASE("node memory is that of data which lie wholly in it") {
  const auto first = std::make_shared<TenBytes>(3);
  auto second = std::make_shared<TenBytes>(3);
  NodeMemories memories;
  memories.Add(first);
  memories.Add(second);
  const std::byte* const begin = second->own().data();
  const auto find = [&](ptrdiff_t offset, size_t bytes) {
    const NodeMemories::Place place = memories.Find({begin + offset, bytes});
    return std::pair(place.memory, place.offset);
  };
  using Found = std::pair<int64_t, int64_t>;
  CHECK(find(0, 10) == Found(1, 0));
  CHECK(find(3, 7) == Found(1, 3));
  CHECK(find(3, 8) == Found(-1, 0));
  CHECK(find(9, 2) == Found(-1, 0));
  CHECK(find(0, 11) == Found(-1, 0));
  CHECK(find(-1, 5).first != 1);
  second.reset();
  CHECK(find(0, 10).first != 1);
}

TEST_CASE("node memory reaches a group where it reaches all of it") {
  const auto all = std::make_shared<TenBytes>(4), some = std::make_shared<TenBytes>(2);
  NodeMemories memories;
  memories.Add(some);
  memories.Add({});
  memories.Add(all);
  const std::vector<int> lower = {0, 1}, mixed = {1, 3}, upper = {2, 3};
  CHECK(memories.Reaching(lower) == 0b101);
  CHECK(memories.Reaching(mixed) == 0b100);
  CHECK(memories.Reaching(upper) == 0b100);
}

TEST_CASE("a rank that does not come to a collective in node memory is named") {
  const auto statuses = RunRanks(
      3,
      [](Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(const auto memory, fabric.Allocate(kNodeBytes));
        if (fabric.rank() == 0) return absl::OkStatus();
        const std::vector<int> pair = {1, 2};
        ASSIGN_OR_RETURN(auto comm, fabric.Group(pair, "tensor"));
        if (fabric.rank() == 2) return absl::OkStatus();
        auto stream = tensor::MakeInlineStream();
        const Ticket ticket = comm->AllReduce(memory->own().data(), 100000, tensor::DType::kF32,
                                              ReduceOp::kSum, *stream);
        return comm->WaitHost(ticket, milliseconds(20));
      },
      WithWindow());
  CHECK(statuses[1].code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(statuses[1].message()),
             Contains("AllReduce #1 on group 'tensor' (ranks 1,2): no progress for 20 ms, "
                      "waiting for rank 2"));
}

// It leaves with its share not added up, and releases the memory that the others are at work in.
TEST_CASE("a rank that fails within a collective in node memory ends the others' waits") {
  for (const bool gathers : {false, true}) {
    const auto statuses = RunRanks(
        3,
        [&](Fabric& fabric) -> absl::Status {
          ASSIGN_OR_RETURN(const auto memory, fabric.Allocate(48 << 20));
          ASSIGN_OR_RETURN(auto comm, fabric.Group(All(3), "all"));
          auto stream = tensor::MakeInlineStream();
          constexpr int64_t kCount = 12 << 20;
          const std::vector<int64_t> offsets = {0, kCount / 3, kCount / 2, kCount};
          std::byte* const data = memory->own().data();
          const Ticket ticket =
              gathers ? comm->AllGather({data, offsets, tensor::DType::kF32}, *stream)
                      : comm->AllReduce(data, kCount, tensor::DType::kF32, ReduceOp::kSum, *stream);
          if (fabric.rank() == 1) return absl::CancelledError("gone");
          return comm->WaitHost(ticket, kDeadline);
        },
        WithWindow());
    for (const size_t r : {0U, 2U}) {
      CHECK(statuses[r].code() == absl::StatusCode::kUnavailable);
      CHECK_THAT(std::string(statuses[r].message()), Contains("lost rank 1: gone"));
    }
  }
}

TEST_CASE("a rank that does not allocate is waited for no longer than the deadline") {
  LocalOptions options;
  options.close_deadline = milliseconds(20);
  LocalHub hub(2, options);
  auto fabric = hub.Rank(0);
  const absl::Status status = fabric->Allocate(100).status();
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(status.message()), Contains("1 of 2 ranks"));
}

}  // namespace
}  // namespace trireme::comm
