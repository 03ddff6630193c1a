// Sums that travel as bf16, over ranks as threads and many in one: to the bit what plain loops
// make, at every border of sizes, pieces and groups.
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/comm/coded.h"
#include "runtime/comm/coded_pieces.h"
#include "runtime/comm/local/local_fabric.h"
#include "tests/runtime/comm/bf16_cases.h"
#include "tests/runtime/comm/crowd.h"
#include "tests/sanitizer.h"

namespace trireme::comm {
namespace {

void CheckAt(int ranks, const LocalOptions& options, const std::vector<int64_t>& counts) {
  INFO(ranks << " ranks");
  const auto statuses = RunRanks(
      ranks,
      [&](Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, fabric.Group(All(ranks), "all"));
        for (const int64_t count : counts) RETURN_IF_ERROR(CheckBf16Transfer(*comm, count));
        return absl::OkStatus();
      },
      options);
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

TEST_CASE("bf16 transfer: each part is rounded once, the sum made in f32 and the same for all") {
  LocalOptions eager;
  eager.fabric.coding.collective_bytes = kCodingBytes;
  LocalOptions small = eager;  // in small pieces, beside a window, by messages that wait
  small.mode = LocalMode::kRendezvous;
  small.fabric.coding.collective_bytes = 400 << 10;
  small.fabric.window_bytes = 64 << 10;
  const std::vector<int> sizes =
      tests::kThreadSanitizer ? std::vector{2, 3} : std::vector{2, 3, 5, 8};
  for (const int ranks : sizes) {
    CheckAt(ranks, eager, {0, 1, 2, 15, 17, 777, 778, 2049, 5000});
    CheckAt(ranks, small, {1, 511, 8191, 30001});
  }
  // A piece, and one element more and less, of each rank's share.
  CheckAt(2, eager, {2 * 65536 - 2, 2 * 65536, 2 * 65536 + 1});
}

TEST_CASE("bf16 transfer: groups of many ranks, with the least memory") {
  for (const int ranks : {16, tests::kThreadSanitizer ? 20 : 65}) {
    LocalOptions options;
    options.fabric.operations = 64;
    options.fabric.coding.collective_bytes = LeastCodedBytes(ranks);
    CheckAt(ranks, options, {1, ranks - 1, 300, ranks * 256 + 5});
  }
}

// However many terms there are, a sum is rounded twice: 2^-8 of what was added, and of itself. Were
// partial sums rounded, those of more than 256 ones would stay at 256.
TEST_CASE("bf16 transfer: the error does not grow with the ranks") {
  constexpr int kRanks = 512;
  constexpr int64_t kCount = 2 * kRanks;
  FabricOptions options;
  options.coding.collective_bytes = LeastCodedBytes(kRanks);
  Crowd crowd(kRanks, options);
  std::vector<std::vector<float>> data(kRanks, std::vector<float>(kCount));
  double exact = 0;
  for (size_t r = 0; r < kRanks; ++r) {
    const float value = 1 + static_cast<float>(r) / kRanks;
    exact += static_cast<double>(value);
    for (float& element : data[r]) element = value;
  }
  const std::vector<CodedRun> runs = {{.begin = 0, .end = kCount, .format = RunFormat::kBf16}};
  Coding coding;
  coding.runs = runs;
  const absl::Status status = crowd.Run([&](Communicator& comm, tensor::Stream& stream) {
    return comm.AllReduce(data[static_cast<size_t>(comm.rank())].data(), kCount,
                          tensor::DType::kF32, ReduceOp::kSum, {stream, &coding});
  });
  INFO(status.ToString());
  REQUIRE(status.ok());
  for (const std::vector<float>& of_rank : data) CHECK(SameBits(of_rank, data[0]));
  // The parts' own errors are even and cancel here; the sum's is at most half a unit.
  CHECK(std::fabs(static_cast<double>(data[0][0]) - exact) <= (0x1p-8 + 0x1p-12) * exact);
}

TEST_CASE("bf16 transfer: half the bytes, to the byte") {
  LocalOptions options;
  options.fabric.coding.collective_bytes = kCodingBytes;
  const auto statuses = RunRanks(
      2,
      [](Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, fabric.Group(All(2), "all"));
        auto stream = tensor::MakeInlineStream();
        constexpr int64_t kCount = 100003;
        std::vector<float> data(kCount, 0.25F);
        const std::vector<CodedRun> runs = {
            {.begin = 0, .end = kCount, .format = RunFormat::kBf16}};
        CodingReport report;
        Coding coding;
        coding.runs = runs;
        coding.report = &report;
        RETURN_IF_ERROR(comm->WaitHost(comm->AllReduce(data.data(), kCount, tensor::DType::kF32,
                                                       ReduceOp::kSum, {*stream, &coding}),
                                       kDeadline));
        return Expect(report.plain_bytes == 4 * kCount && report.coded_bytes == 2 * kCount &&
                          report.largest_error == 0,
                      "bytes");
      },
      options);
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
}

TEST_CASE("bf16 transfer: a run of bf16 has no bound") {
  const CodedRun run{.begin = 0, .end = 9, .format = RunFormat::kBf16};
  CHECK(CheckRuns({&run, 1}, 9).ok());
  CodedRun bounded = run;
  bounded.bound = 0.1;
  CHECK(CheckRuns({&bounded, 1}, 9).code() == absl::StatusCode::kInvalidArgument);
  CodedRun lined = run;
  const ScaleLine line;
  lined.lines = {&line, 1};
  CHECK(CheckRuns({&lined, 1}, 9).code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trireme::comm
