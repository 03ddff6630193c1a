// Nothing is allocated per call: operations, messages and staging stand in pools made with the
// group.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "tests/runtime/comm/coded_cases.h"

namespace {
thread_local int64_t allocations = 0;
}  // namespace

// Never inlined: g++ would see malloc's memory freed by a delete that is not new's, and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// The library's own would not give malloc's memory.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace trireme::comm {
namespace {

TEST_CASE("no call allocates") {
  for (const size_t window_bytes : {size_t{0}, size_t{64} << 10}) {
    LocalOptions options;
    options.fabric.window_bytes = window_bytes;
    const auto statuses = RunRanks(
        3,
        [](Fabric& fabric) -> absl::Status {
          ASSIGN_OR_RETURN(auto comm, fabric.Group(All(3), "all"));
          auto stream = tensor::MakeInlineStream();
          const int64_t count = 40000;
          // A buffer belongs to its operation: one each.
          std::vector<std::vector<double>> data(11,
                                                std::vector<double>(static_cast<size_t>(count)));
          const std::vector<int64_t> offsets = {0, 100, 100, count};
          const Sharded scatter{data[2].data(), offsets, tensor::DType::kF64};
          const Sharded gather{data[3].data(), offsets, tensor::DType::kF64};
          const Sharded scatter_apart{data[7].data(), offsets, tensor::DType::kF64, data[8].data()};
          const Sharded gather_apart{data[9].data(), offsets, tensor::DType::kF64, data[10].data()};
          ASSIGN_OR_RETURN(const auto memory, fabric.Allocate(data[0].size() * sizeof(double)));
          const auto node = reinterpret_cast<double*>(memory->own().data());
          const Sharded in_node{node, offsets, tensor::DType::kF64};
          const auto bytes = [&](size_t i) { return std::as_writable_bytes(std::span(data[i])); };
          int64_t before = 0;
          for (int round = 0; round < 5; ++round) {
            // The first round makes the mailboxes' blocks for eager messages.
            if (round == 1) before = allocations;
            const Ticket tickets[] = {
                comm->AllReduce(data[0].data(), 10, tensor::DType::kF64, ReduceOp::kMax, *stream),
                comm->AllReduce(data[1].data(), count, tensor::DType::kF64, ReduceOp::kSum,
                                *stream),
                comm->ReduceScatter(scatter, *stream),
                comm->AllGather(gather, *stream),
                comm->ReduceScatter(scatter_apart, *stream),
                comm->AllGather(gather_apart, *stream),
                comm->Broadcast(bytes(4), 1, *stream),
                comm->Send(bytes(5), (comm->rank() + 1) % 3, 0, *stream),
                comm->Recv(bytes(6), (comm->rank() + 2) % 3, 0, *stream),
            };
            for (const Ticket ticket : tickets) RETURN_IF_ERROR(comm->WaitHost(ticket, kDeadline));
            // One after another: it is one buffer.
            RETURN_IF_ERROR(comm->WaitHost(
                comm->AllReduce(node, count, tensor::DType::kF64, ReduceOp::kSum, *stream),
                kDeadline));
            RETURN_IF_ERROR(comm->WaitHost(comm->ReduceScatter(in_node, *stream), kDeadline));
            RETURN_IF_ERROR(comm->WaitHost(comm->AllGather(in_node, *stream), kDeadline));
          }
          return Expect(allocations == before, "a call allocated");
        },
        options);
    for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
  }
}

TEST_CASE("no coded call allocates") {
  LocalOptions options;
  options.fabric.coding.collective_bytes = kCodingBytes;
  options.fabric.coding.messages = 2;
  const auto statuses = RunRanks(
      3,
      [](Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, fabric.Group(All(3), "all"));
        auto stream = tensor::MakeInlineStream();
        constexpr int64_t kCount = 150000;
        std::vector<std::vector<float>> data(5, CodedValues(fabric.rank(), kCount, true));
        const std::vector<int64_t> offsets = {0, 100, 100, kCount};
        const std::vector<CodedRun> runs = {
            {0, 90000, 0.01},
            {100000, 120000, 0.1},
            {.begin = 120000, .end = kCount, .format = RunFormat::kBf16}};
        CodingReport report;
        Coding coding;
        coding.runs = runs;
        coding.message_bound = {compress::BoundMode::kRms, 0.1};
        coding.measure_error = true;
        coding.report = &report;
        const OperationOptions coded(*stream, &coding);
        const auto bytes = [&](size_t i) { return std::as_writable_bytes(std::span(data[i])); };
        int64_t before = 0;
        for (int round = 0; round < 5; ++round) {
          if (round == 1) before = allocations;
          Ticket tickets[5];
          for (size_t k = 0; k < std::size(tickets); ++k) {
            const Sharded sharded{data[k].data(), offsets, tensor::DType::kF32};
            tickets[k] = k == 0   ? comm->AllReduce(data[0].data(), kCount, tensor::DType::kF32,
                                                    ReduceOp::kSum, coded)
                         : k == 1 ? comm->ReduceScatter(sharded, coded)
                         : k == 2 ? comm->AllGather(sharded, coded)
                         : k == 3 ? comm->Send(bytes(3), (comm->rank() + 1) % 3, 0, coded)
                                  : comm->Recv(bytes(4), (comm->rank() + 2) % 3, 0, coded);
          }
          for (const Ticket ticket : tickets) RETURN_IF_ERROR(comm->WaitHost(ticket, kDeadline));
        }
        return Expect(allocations == before, "a coded call allocated");
      },
      options);
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
}

}  // namespace
}  // namespace trireme::comm
