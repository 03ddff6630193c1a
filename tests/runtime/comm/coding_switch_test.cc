// The off-switch as a pure class, agreed by ranks, and the decorator that obeys it.
#include "runtime/comm/coding_switch.h"

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/comm/coded_fabric.h"
#include "runtime/comm/local/local_fabric.h"
#include "tests/runtime/comm/coded_cases.h"

namespace trireme::comm {
namespace {

// Runs a trial and agrees; returns how many calls were made until the trial was over.
int Trial(CodingSwitch* one, double plain_s, double coded_s) {
  int calls = 0;
  while (!one->due()) {
    one->Record(one->coded() ? coded_s : plain_s);
    ++calls;
  }
  one->Agree(one->own_times());
  return calls;
}

TEST_CASE("a switch starts plain, tries both ways, and takes the faster") {
  CodingSwitchOptions options;
  options.samples = 2;
  CodingSwitch faster(options), slower(options);
  std::vector<bool> ways;
  for (int call = 0; call < 4; ++call) {
    ways.push_back(faster.coded());
    faster.Record(faster.coded() ? 1 : 2);
  }
  CHECK(ways == std::vector<bool>{false, true, false, true});
  CHECK(faster.due());
  CHECK_FALSE(faster.coded());  // until all ranks agree
  faster.Record(9);
  CHECK(faster.own_times().plain_s == 2);
  faster.Agree({2, 1});
  CHECK(faster.coded());
  CHECK(Trial(&slower, 1, 2) == 4);
  CHECK_FALSE(slower.coded());
}

TEST_CASE("the slowest rank's times decide, not this rank's") {
  CodingSwitch one;
  while (!one.due()) one.Record(one.coded() ? 1 : 2);
  one.Agree({2, 5});
  CHECK_FALSE(one.coded());
}

TEST_CASE("the other way is taken only if it is faster by the margin") {
  CodingSwitchOptions options;
  options.margin = 0.1;
  CodingSwitch one(options);
  Trial(&one, 1, 0.95);
  CHECK_FALSE(one.coded());
  Trial(&one, 1, 0.85);
  CHECK(one.coded());
  Trial(&one, 0.8, 0.85);
  CHECK(one.coded());
  Trial(&one, 0.7, 0.85);
  CHECK_FALSE(one.coded());
}

TEST_CASE("trials grow rare while nothing changes, and frequent again after a change") {
  CodingSwitchOptions options;
  options.samples = 1;
  options.shortest_period = 4;
  options.longest_period = 20;
  CodingSwitch one(options);
  CHECK(Trial(&one, 1, 2) == 2);
  for (const int period : {8, 16, 20, 20}) CHECK(Trial(&one, 1, 2) == period + 2);
  CHECK(Trial(&one, 2, 1) == 22);
  CHECK(one.coded());
  CHECK(Trial(&one, 2, 1) == 6);
  // Of many calls, few are tried the slow way.
  CodingSwitch usual;
  int coded = 0;
  for (int call = 0; call < 10000; ++call) {
    coded += usual.coded() ? 1 : 0;
    usual.Record(usual.coded() ? 2 : 1);
    if (usual.due()) usual.Agree(usual.own_times());
  }
  CHECK(coded < 30);
}

TEST_CASE("ranks agree, and a decorated fabric does what mode, size and switch say") {
  for (const CodingMode mode : {CodingMode::kOff, CodingMode::kOn, CodingMode::kAuto}) {
    std::vector<CodingTotals> totals(3);
    LocalOptions options;
    options.fabric.coding.collective_bytes = mode == CodingMode::kOff ? 0 : kCodingBytes;
    options.fabric.coding.messages = mode == CodingMode::kOff ? 0 : 2;
    LocalHub hub(3, options);
    const auto statuses = RunRanks(3, [&](Fabric& plain) -> absl::Status {
      const int r = plain.rank();
      CodedOptions coded;
      coded.mode = mode;
      coded.totals = &totals[static_cast<size_t>(r)];
      auto fabric = MakeCodedFabric(hub.Rank(r), coded);
      ASSIGN_OR_RETURN(auto comm, fabric->Group(All(3), "all"));
      auto stream = tensor::MakeInlineStream();
      constexpr int64_t kCount = 50000;
      const std::vector<CodedRun> runs = {{0, kCount, 0.01}};
      CodingSwitch chooser;
      CodingSwitch* const switches[] = {&chooser};
      CodingReport report;
      Coding coding;
      coding.runs = runs;
      coding.chooser = &chooser;
      coding.report = &report;
      for (int step = 0; step < 6; ++step) {
        for (const int64_t count : {kCount, int64_t{1000}}) {
          std::vector<float> data = CodedValues(r, kCount, false);
          const std::vector<CodedRun> small = {{0, count, 0.01}};
          coding.runs = small;
          const bool chosen =
              mode == CodingMode::kOn || (mode == CodingMode::kAuto && chooser.coded());
          RETURN_IF_ERROR(comm->WaitHost(comm->AllReduce(data.data(), count, tensor::DType::kF32,
                                                         ReduceOp::kSum, {*stream, &coding}),
                                         kDeadline));
          RETURN_IF_ERROR(
              Expect(report.coded == (chosen && count == kCount), "coded against the mode"));
        }
        // Each rank finds another way faster; the slowest rank's times say: coded.
        chooser.Record(chooser.coded() ? 1 + 0.1 * r : (r == 0 ? 3 : 0.5));
        Communicator* const group[] = {comm.get()};
        RETURN_IF_ERROR(AgreeOnCoding(group, switches, *stream, kDeadline));
      }
      RETURN_IF_ERROR(Expect(chooser.coded(), "the agreement"));
      std::vector<float> values(20000, 1), got(20000);
      coding.message_bound = {compress::BoundMode::kAbsolute, 0.1};
      const Ticket in =
          comm->Recv(std::as_writable_bytes(std::span(got)), (r + 2) % 3, 0, {*stream, &coding});
      const Ticket out =
          comm->Send(std::as_bytes(std::span(values)), (r + 1) % 3, 0, {*stream, &coding});
      RETURN_IF_ERROR(comm->WaitHost(in, kDeadline));
      RETURN_IF_ERROR(comm->WaitHost(out, kDeadline));
      return Expect(std::fabs(got[77] - 1) <= 0.1F, "message");
    });
    for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
    CHECK(totals[1].calls() == 14);
    const CodingReport sum = totals[1].sum();
    CHECK((sum.ratio() > 1) == (mode != CodingMode::kOff));
    CHECK((sum.codec_ns > 0) == (mode != CodingMode::kOff));
  }
}

TEST_CASE("groups that cross agree as one") {
  std::vector<int> coded(4);
  const auto statuses = RunRanks(4, [&](Fabric& fabric) -> absl::Status {
    const int rank = fabric.rank();
    const int row[] = {rank / 2 * 2, rank / 2 * 2 + 1}, column[] = {rank % 2, rank % 2 + 2};
    ASSIGN_OR_RETURN(auto first, fabric.Group(row, "row"));
    ASSIGN_OR_RETURN(auto second, fabric.Group(column, "column"));
    auto stream = tensor::MakeInlineStream();
    CodingSwitch chooser;
    CodingSwitch* const switches[] = {&chooser};
    Communicator* const groups[] = {first.get(), second.get()};
    // Coding is faster everywhere but on rank 3, which shares no group with rank 0.
    while (!chooser.due()) chooser.Record(chooser.coded() && rank != 3 ? 1 : 2);
    RETURN_IF_ERROR(AgreeOnCoding(groups, switches, *stream, kDeadline));
    coded[static_cast<size_t>(rank)] = chooser.coded() ? 1 : 0;
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
  CHECK(coded == std::vector<int>(4, 0));
}

}  // namespace
}  // namespace trireme::comm
