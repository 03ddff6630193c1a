// Coded collectives and messages over ranks as threads: bits, bounds, failures, other groups.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/comm/faulty.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/comm/scale_lines.h"
#include "tests/runtime/comm/coded_cases.h"
#include "tests/sanitizer.h"

namespace trireme::comm {
namespace {

using Catch::Contains;

LocalOptions WithCoding(LocalMode mode = LocalMode::kEager) {
  LocalOptions options;
  options.mode = mode;
  options.fabric.coding.collective_bytes = kCodingBytes;
  options.fabric.coding.messages = 4;
  return options;
}

void RequireAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

TEST_CASE("coded calls keep bounds and bits whatever the pieces and the transport") {
  LocalOptions small = WithCoding(LocalMode::kRendezvous);
  small.fabric.coding.collective_bytes = 200 << 10;  // small pieces
  small.fabric.coding.messages = 2;
  LocalOptions window = WithCoding();
  window.fabric.window_bytes = 64 << 10;
  const std::vector<int> sizes =
      tests::kThreadSanitizer ? std::vector{3} : std::vector{1, 2, 3, 4, 7};
  for (const LocalOptions& options : {WithCoding(), small, window}) {
    for (const int ranks : sizes) {
      RequireAllOk(RunRanks(
          ranks,
          [&](Fabric& fabric) -> absl::Status {
            ASSIGN_OR_RETURN(auto comm, fabric.Group(All(fabric.size()), "all"));
            return CheckCoded(*comm);
          },
          options));
    }
  }
}

TEST_CASE("transports and memory do not change the bits of a coded sum") {
  std::vector<std::vector<float>> sums(3);
  const size_t memories[] = {kCodingBytes, 200 << 10, 4 << 20};
  for (size_t k = 0; k < sums.size(); ++k) {
    LocalOptions options = WithCoding(k == 1 ? LocalMode::kRendezvous : LocalMode::kEager);
    options.fabric.coding.collective_bytes = memories[k];
    RequireAllOk(RunRanks(
        3,
        [&](Fabric& fabric) -> absl::Status {
          ASSIGN_OR_RETURN(auto comm, fabric.Group(All(3), "all"));
          std::vector<float> sum;
          RETURN_IF_ERROR(CodedAllReduce(*comm, {150000, true}, &sum));
          if (fabric.rank() == 1) sums[k] = sum;
          return absl::OkStatus();
        },
        options));
  }
  CHECK(SameBits(sums[0], sums[1]));
  CHECK(SameBits(sums[0], sums[2]));
}

TEST_CASE("a coding that is not enabled reports of a plain call") {
  RequireAllOk(RunRanks(4, [](Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto comm, fabric.Group(All(4), "all"));
    auto stream = tensor::MakeInlineStream();
    std::vector<float> data(40000, 0.3F);
    CodingReport report;
    Coding coding;
    coding.enabled = false;
    coding.report = &report;
    RETURN_IF_ERROR(comm->WaitHost(comm->AllReduce(data.data(), 40000, tensor::DType::kF32,
                                                   ReduceOp::kSum, {*stream, &coding}),
                                   kDeadline));
    RETURN_IF_ERROR(Expect(data[7] == 0.3F + 0.3F + (0.3F + 0.3F), "sum"));
    return Expect(report.plain_bytes == 40000 * 4 * 6 / 4 &&
                      report.coded_bytes == report.plain_bytes && report.codec_ns == 0 &&
                      report.total_ns > 0,
                  "report");
  }));
}

TEST_CASE("waits in one group serve the coded collectives of another") {
  RequireAllOk(RunRanks(
      6,
      [](Fabric& fabric) -> absl::Status {
        const int r = fabric.rank();
        const std::vector<int> row = {r / 3 * 3, r / 3 * 3 + 1, r / 3 * 3 + 2};
        const std::vector<int> column = {r % 3, r % 3 + 3};
        ASSIGN_OR_RETURN(auto rows, fabric.Group(row, "row"));
        ASSIGN_OR_RETURN(auto columns, fabric.Group(column, "column"));
        auto stream = tensor::MakeInlineStream();
        constexpr int64_t kCount = 300000;
        std::vector<float> a = CodedValues(r, kCount, false), b = a, c = a, d = a;
        const std::vector<CodedRun> runs = {{0, kCount, 0.01}};
        Coding coding;
        coding.runs = runs;
        const auto sum = [&](Communicator& comm, std::vector<float>& data) {
          return comm.AllReduce(data.data(), kCount, tensor::DType::kF32, ReduceOp::kSum,
                                {*stream, &coding});
        };
        // Three in one group, more than it has lanes; odd ranks wait in the other order.
        const std::vector<std::pair<Communicator*, Ticket>> waits = {
            {rows.get(), sum(*rows, a)},
            {columns.get(), sum(*columns, b)},
            {rows.get(), sum(*rows, c)},
            {rows.get(), sum(*rows, d)}};
        for (size_t i = 0; i < waits.size(); ++i) {
          const auto& [comm, ticket] = waits[r % 2 == 0 ? i : waits.size() - 1 - i];
          RETURN_IF_ERROR(comm->WaitHost(ticket, kDeadline));
        }
        RETURN_IF_ERROR(Expect(SameBits(a, c) && SameBits(a, d), "three sums of the same"));
        RETURN_IF_ERROR(ExpectSameOnAllRanks(*rows, a));
        return ExpectSameOnAllRanks(*columns, b);
      },
      WithCoding(LocalMode::kRendezvous)));
}

TEST_CASE("more coded messages than buffers, received in another order than sent") {
  RequireAllOk(RunRanks(
      2,
      [](Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, fabric.Group(All(2), "pipe"));
        auto stream = tensor::MakeInlineStream();
        const int peer = 1 - fabric.rank();
        constexpr size_t kMessages = 12;
        std::vector<std::vector<float>> out(kMessages), in(kMessages, std::vector<float>(30000));
        Coding coding;
        coding.message_bound = {compress::BoundMode::kRms, 0.1};
        std::vector<Ticket> tickets;
        // Receives stand for messages of several channels before any is sent.
        for (size_t k = 0; k < kMessages; ++k) {
          tickets.push_back(comm->Recv(std::as_writable_bytes(std::span(in[k])), peer,
                                       static_cast<uint32_t>(k % 3), {*stream, &coding}));
        }
        for (size_t k = 0; k < kMessages; ++k) {
          const size_t message = k / 4 + k % 4 * 3;  // channel by channel
          out[message] = CodedValues(fabric.rank() + static_cast<int>(message), 30000, false);
          tickets.push_back(comm->Send(std::as_bytes(std::span(out[message])), peer,
                                       static_cast<uint32_t>(message % 3), {*stream, &coding}));
        }
        for (const Ticket ticket : tickets) RETURN_IF_ERROR(comm->WaitHost(ticket, kDeadline));
        for (size_t k = 0; k < kMessages; ++k) {
          const auto sent = CodedValues(peer + static_cast<int>(k), 30000, false);
          for (size_t i = 0; i < sent.size(); ++i) {
            RETURN_IF_ERROR(Expect(std::fabs(sent[i] - in[k][i]) < 0.2F, "another message"));
          }
        }
        return absl::OkStatus();
      },
      WithCoding(LocalMode::kRendezvous)));
}

TEST_CASE("a silent peer of a coded collective is named") {
  LocalHub hub(3, WithCoding());
  auto fabric = hub.Rank(1);
  const std::vector<int> pair = {1, 2};
  auto comm = *fabric->Group(pair, "tensor");
  auto stream = tensor::MakeInlineStream();
  std::vector<float> data(100000);
  const std::vector<CodedRun> runs = {{0, 100000, 0.1}};
  Coding coding;
  coding.runs = runs;
  const Ticket ticket =
      comm->AllReduce(data.data(), 100000, tensor::DType::kF32, ReduceOp::kSum, {*stream, &coding});
  const absl::Status status = comm->WaitHost(ticket, milliseconds(20));
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(status.message()),
             Contains("AllReduce #1 on group 'tensor' (ranks 1,2): no progress for 20 ms, "
                      "waiting for rank 2"));
}

absl::Status ThreeCodedSums(Fabric& fabric, milliseconds deadline) {
  ASSIGN_OR_RETURN(auto comm, fabric.Group(All(fabric.size()), "all"));
  auto stream = tensor::MakeInlineStream();
  const std::vector<CodedRun> runs = {{0, 50000, 0.01}};
  Coding coding;
  coding.runs = runs;
  for (int k = 0; k < 3; ++k) {
    std::vector<float> data = CodedValues(comm->rank(), 50000, false);
    RETURN_IF_ERROR(comm->WaitHost(comm->AllReduce(data.data(), 50000, tensor::DType::kF32,
                                                   ReduceOp::kSum, {*stream, &coding}),
                                   deadline));
  }
  return absl::OkStatus();
}

TEST_CASE("coded collectives pass a delay, and end at a drop or a kill") {
  for (const Fault::Kind kind : {Fault::Kind::kDelay, Fault::Kind::kDrop, Fault::Kind::kKill}) {
    LocalHub hub(3, WithCoding());
    std::vector<absl::Status> statuses(3);
    std::vector<std::thread> threads;
    std::atomic<int> stopped{0};
    for (int r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        auto inner = hub.Rank(r);
        auto* whole = static_cast<MessageFabric*>(inner.get());
        std::vector<Fault> faults;
        if (r == 1) {
          Fault fault;
          fault.kind = kind;
          fault.operation = 2;
          fault.delay = milliseconds(30);
          fault.kill = [&stopped, whole] {
            ++stopped;
            whole->Abort(absl::CancelledError("killed"));
          };
          faults.push_back(fault);
        }
        auto fabric = MakeFaulty(std::move(inner), faults);
        const bool drops = kind == Fault::Kind::kDrop;
        statuses[static_cast<size_t>(r)] =
            ThreeCodedSums(*fabric, drops ? milliseconds(300) : kDeadline);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t r = 0; r < 3; ++r) {
      // Who drops a call does not know; its next call serves as the others' second.
      if (r == 1 && kind == Fault::Kind::kDrop) continue;
      INFO(statuses[r].ToString());
      CHECK(statuses[r].ok() == (kind == Fault::Kind::kDelay));
    }
    CHECK(stopped == (kind == Fault::Kind::kKill ? 1 : 0));
  }
}

TEST_CASE("a rank whose pieces are not what was agreed is named, and the group poisoned") {
  const auto statuses = RunRanks(
      2,
      [](Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, fabric.Group(All(2), "all"));
        auto stream = tensor::MakeInlineStream();
        std::vector<float> data = CodedValues(comm->rank(), 5000, false);
        const std::vector<CodedRun> runs = {{0, 5000, comm->rank() == 0 ? 0.01 : 0.02}};
        Coding coding;
        coding.runs = runs;
        const absl::Status status =
            comm->WaitHost(comm->AllReduce(data.data(), 5000, tensor::DType::kF32, ReduceOp::kSum,
                                           {*stream, &coding}),
                           kDeadline);
        RETURN_IF_ERROR(Expect(!comm->status().ok() && status == comm->status(), "not poisoned"));
        return status;
      },
      WithCoding());
  int named = 0;
  for (size_t r = 0; r < 2; ++r) {
    const std::string message(statuses[r].message());
    CHECK_FALSE(statuses[r].ok());
    if (statuses[r].code() != absl::StatusCode::kDataLoss) continue;
    ++named;
    CHECK_THAT(message, Contains("AllReduce #1 on group 'all'") &&
                            Contains(r == 0 ? "from rank 1" : "from rank 0") &&
                            Contains("of step"));
  }
  CHECK(named > 0);
}

// Lines of 7, 100, 1 and 40000 elements ... with columns on every other one.
struct SomeLines {
  explicit SomeLines(int64_t count) : columns(40000) {
    for (size_t i = 0; i < columns.size(); ++i) {
      columns[i] = std::ldexp(1.0F, static_cast<int>(i % 7) - 3);
    }
    const int64_t lengths[] = {7, 100, 1, 40000};
    int64_t at = 0;
    for (size_t k = 0; at < count; at += lengths[k++ % 4]) {
      lines.push_back({.begin = at,
                       .row = std::ldexp(1.0F, static_cast<int>(k % 23) - 20),
                       .columns = k % 2 == 1 ? columns.data() : nullptr});
    }
  }
  double ScaleOf(int64_t element) const {
    size_t line = 0;
    while (line + 1 < lines.size() && lines[line + 1].begin <= element) ++line;
    const ScaleLine& one = lines[line];
    const auto at = static_cast<size_t>(element - one.begin);
    return one.row * (one.columns == nullptr ? 1.0F : columns[at]);
  }
  std::vector<float> columns;
  std::vector<ScaleLine> lines;
};

TEST_CASE("the largest scale of a range is that of one of its elements") {
  constexpr int64_t kCount = 80220;
  SomeLines lines(kCount);
  // Rows that share their columns, as those of a matrix.
  for (int row = 0; row < 30; ++row) {
    lines.lines.push_back({.begin = kCount + 13 * row,
                           .row = std::ldexp(1.0F, row % 11),
                           .columns = &lines.columns[2]});
  }
  constexpr int64_t kEnd = kCount + 13 * 30;
  std::vector<double> scales;
  for (int64_t i = 0; i < kEnd; ++i) scales.push_back(lines.ScaleOf(i));
  const std::vector<std::pair<int64_t, int64_t>> ranges = {{0, 1},
                                                           {6, 8},
                                                           {3, 150},
                                                           {100, 107},
                                                           {107, 40000},
                                                           {40107, 40120},
                                                           {kCount - 5, kEnd},
                                                           {kCount + 1, kCount + 12},
                                                           {kCount, kEnd},
                                                           {kCount + 15, kCount + 100}};
  for (const auto& [begin, end] : ranges) {
    INFO(begin << " to " << end);
    CHECK(LargestScale(lines.lines, begin, end) ==
          *std::max_element(scales.begin() + begin, scales.begin() + end));
  }
}

TEST_CASE("lines give every element a bound of its own and the same bits in all pieces") {
  constexpr int64_t kCount = 150001;
  const SomeLines lines(kCount);
  for (const int ranks : {2, 3}) {
    std::vector<std::vector<float>> terms;
    for (int rank = 0; rank < ranks; ++rank) {
      terms.push_back(CodedValues(rank, kCount, false));
      for (int64_t i = 0; i < kCount; i += 3) {  // of the scale's size
        terms.back()[static_cast<size_t>(i)] *= static_cast<float>(lines.ScaleOf(i));
      }
    }
    std::vector<std::vector<float>> sums;
    for (const int64_t piece_values : {65536, 1000}) {
      const auto statuses = RunRanks(
          ranks,
          [&](Fabric& fabric) -> absl::Status {
            ASSIGN_OR_RETURN(auto comm, fabric.Group(All(ranks), "all"));
            auto stream = tensor::MakeInlineStream();
            std::vector<float> data = terms[static_cast<size_t>(fabric.rank())];
            const CodedRun run{.begin = 0, .end = kCount, .bound = 0.05, .lines = lines.lines};
            CodingReport report;
            Coding coding;
            coding.runs = {&run, 1};
            coding.piece_values = piece_values;
            coding.report = &report;
            RETURN_IF_ERROR(comm->WaitHost(comm->AllReduce(data.data(), kCount, tensor::DType::kF32,
                                                           ReduceOp::kSum, {*stream, &coding}),
                                           kDeadline));
            RETURN_IF_ERROR(ExpectSameOnAllRanks(*comm, data));
            RETURN_IF_ERROR(Expect(report.coded && report.largest_error > 0, "not coded"));
            if (fabric.rank() == 0) sums.push_back(data);
            return absl::OkStatus();
          },
          WithCoding());
      RequireAllOk(statuses);
    }
    CHECK(SameBits(sums[0], sums[1]));
    double closest = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const auto at = static_cast<size_t>(i);
      const double bound = 0.05 * lines.ScaleOf(i);
      if (!SumHolds(terms, at, sums[0][at], bound)) {
        FAIL_CHECK("element " << i << ": " << sums[0][at] << " beyond its bound " << bound);
        break;
      }
      double exact = 0;
      for (const std::vector<float>& term : terms) exact += static_cast<double>(term[at]);
      closest = std::max(closest, std::abs(exact - static_cast<double>(sums[0][at])) / bound);
    }
    CHECK(closest > 1);  // of one term's bound: it is used
  }
}

TEST_CASE("calls that cannot be coded are refused with the fault and the fix") {
  const auto message =
      [](const LocalOptions& options, const Coding& coding,
         const std::function<Ticket(Communicator&, const OperationOptions&)>& call) {
        LocalHub hub(2, options);
        auto fabric = hub.Rank(0);
        auto comm = *fabric->Group(All(2), "g");
        auto stream = tensor::MakeInlineStream();
        return std::string(comm->WaitHost(call(*comm, {*stream, &coding}), kDeadline).message());
      };
  static float data[8] = {};
  const auto sum = [](Communicator& c, const OperationOptions& o) {
    return c.AllReduce(data, 8, tensor::DType::kF32, ReduceOp::kSum, o);
  };
  Coding coding;
  CHECK_THAT(message({}, coding, sum), Contains("CodingRoom::collective_bytes"));
  CHECK_THAT(message({}, coding,
                     [](Communicator& c, const OperationOptions& o) {
                       return c.Send(std::as_bytes(std::span(data)), 1, 0, o);
                     }),
             Contains("CodingRoom::messages"));
  CHECK_THAT(message(WithCoding(), coding,
                     [](Communicator& c, const OperationOptions& o) {
                       return c.AllReduce(data, 4, tensor::DType::kF64, ReduceOp::kSum, o);
                     }),
             Contains("only sums and AllGather of f32"));
  CHECK_THAT(message(WithCoding(), coding,
                     [](Communicator& c, const OperationOptions& o) {
                       return c.Send(std::as_bytes(std::span(data)).first(7), 1, 0, o);
                     }),
             Contains("7 bytes"));
  std::vector<CodedRun> runs = {{0, 4, 0.1}, {3, 8, 0.1}};
  coding.runs = runs;
  CHECK_THAT(message(WithCoding(), coding, sum), Contains("coded run 1 is [3, 8)"));
  runs = {{0, 9, 0.1}};
  coding.runs = runs;
  CHECK_THAT(message(WithCoding(), coding, sum), Contains("inside [0, 8)"));
  runs = {{0, 8, -1}};
  coding.runs = runs;
  CHECK_THAT(message(WithCoding(), coding, sum), Contains("bound -1"));
  std::vector<ScaleLine> lines = {{0, 1}, {4, 3}};
  runs = {{0, 8, 0.1, lines}};
  coding.runs = runs;
  CHECK_THAT(message(WithCoding(), coding, sum), Contains("line 1 at 4 of scale 3"));
  lines = {{1, 1}};
  runs[0].lines = lines;
  CHECK_THAT(message(WithCoding(), coding, sum), Contains("line 0 at 1"));
  lines = {{0, 1}, {0, 2}};
  runs[0].lines = lines;
  CHECK_THAT(message(WithCoding(), coding, sum), Contains("line 1 at 0"));
  LocalOptions little = WithCoding();
  little.fabric.coding.collective_bytes = 1000;
  LocalHub hub(2, little);
  CHECK_THAT(std::string(hub.Rank(0)->Group(All(2), "g").status().message()),
             Contains("collective_bytes is 1000; expected at least"));
}

}  // namespace
}  // namespace trireme::comm
