// Streams: an operation begins after the work issued before it on its stream, and work issued after
// WaitOn sees its result.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "tests/runtime/comm/cases.h"

namespace trireme::comm {
namespace {

// Computes, sums, computes, three times over: only right if every step waits for the one before.
absl::Status ChainOn(Communicator& comm, tensor::Stream& stream, int64_t count) {
  std::vector<double> data(static_cast<size_t>(count), 0.0);
  double* values = data.data();
  const double mine = comm.rank() + 1;
  for (int round = 0; round < 3; ++round) {
    stream.Issue(tensor::Task([=] {
      for (int64_t i = 0; i < count; ++i) values[i] += mine;
    }));
    const Ticket ticket =
        comm.AllReduce(values, count, tensor::DType::kF64, ReduceOp::kSum, stream);
    comm.WaitOn(ticket, stream, kDeadline);
  }
  stream.Synchronize();
  RETURN_IF_ERROR(comm.status());
  const double n = comm.size();
  double expected = 0;
  for (int round = 0; round < 3; ++round) expected = expected * n + n * (n + 1) / 2;
  for (const double value : data)
    RETURN_IF_ERROR(Expect(value == expected, "a step ran too early"));
  return absl::OkStatus();
}

TEST_CASE("operations keep their place on inline and threaded streams") {
  for (const size_t window_bytes : {size_t{0}, size_t{64} << 10}) {
    LocalOptions options;
    options.fabric.window_bytes = window_bytes;
    const auto statuses = RunRanks(
        4,
        [](Fabric& fabric) -> absl::Status {
          auto threaded = tensor::MakeThreadStream();
          auto in_line = tensor::MakeInlineStream();
          ASSIGN_OR_RETURN(auto comm, fabric.Group(All(4), "all"));
          for (const int64_t count : {1, 3000, 70000}) {
            RETURN_IF_ERROR(ChainOn(*comm, *threaded, count));
            RETURN_IF_ERROR(ChainOn(*comm, *in_line, count));
          }
          return absl::OkStatus();
        },
        options);
    for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
  }
}

TEST_CASE("messages of a channel keep the order of issue when their streams do not") {
  const auto statuses = RunRanks(2, [](Fabric& fabric) -> absl::Status {
    auto slow = tensor::MakeThreadStream();
    auto quick = tensor::MakeInlineStream();
    ASSIGN_OR_RETURN(auto comm, fabric.Group(All(2), "pipe"));
    std::atomic<bool> gate{false};
    int values[2] = {1, 2};
    Ticket tickets[2];
    if (fabric.rank() == 0) {
      std::atomic<bool>* open = &gate;
      slow->Issue(tensor::Task([open] {
        while (!open->load()) std::this_thread::yield();
      }));
      tickets[0] = comm->Send(std::as_bytes(std::span(&values[0], 1)), 1, 0, *slow);
      tickets[1] = comm->Send(std::as_bytes(std::span(&values[1], 1)), 1, 0, *quick);
      comm->Progress();
      gate.store(true);
    } else {
      values[0] = values[1] = 0;
      for (int k = 0; k < 2; ++k) {
        tickets[k] = comm->Recv(std::as_writable_bytes(std::span(&values[k], 1)), 0, 0, *quick);
      }
    }
    for (const Ticket ticket : tickets) RETURN_IF_ERROR(comm->WaitHost(ticket, kDeadline));
    return Expect(values[0] == 1 && values[1] == 2, "the second message overtook the first");
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
}

TEST_CASE(
    "groups are apart: the same channel in overlapping groups, and waits that serve another "
    "group's peers") {
  const auto statuses = RunRanks(6, [](Fabric& fabric) -> absl::Status {
    const int r = fabric.rank();
    const std::vector<int> row = {r / 3 * 3, r / 3 * 3 + 1, r / 3 * 3 + 2};
    const std::vector<int> column = {r % 3, r % 3 + 3};
    ASSIGN_OR_RETURN(auto rows, fabric.Group(row, "row"));
    ASSIGN_OR_RETURN(auto columns, fabric.Group(column, "column"));
    ASSIGN_OR_RETURN(auto again, fabric.Group(row, "row"));
    auto stream = tensor::MakeInlineStream();
    std::vector<int32_t> a(5000, r), b(5000, r), c(10, r);
    const Ticket first =
        rows->AllReduce(a.data(), 5000, tensor::DType::kI32, ReduceOp::kSum, *stream);
    const Ticket second =
        columns->AllReduce(b.data(), 5000, tensor::DType::kI32, ReduceOp::kSum, *stream);
    const Ticket third =
        again->AllReduce(c.data(), 10, tensor::DType::kI32, ReduceOp::kSum, *stream);
    // Odd ranks wait in the other order.
    const std::vector<std::pair<Communicator*, Ticket>> waits = {
        {rows.get(), first}, {columns.get(), second}, {again.get(), third}};
    for (size_t i = 0; i < waits.size(); ++i) {
      const auto& [comm, ticket] = waits[r % 2 == 0 ? i : waits.size() - 1 - i];
      RETURN_IF_ERROR(comm->WaitHost(ticket, kDeadline));
    }
    const int in_row = row[0] + row[1] + row[2];
    RETURN_IF_ERROR(Expect(a[4999] == in_row && c[9] == in_row, "row"));
    return Expect(b[4999] == column[0] + column[1], "column");
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
}

}  // namespace
}  // namespace trireme::comm
