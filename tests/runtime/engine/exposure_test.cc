// Exposed communication: the arithmetic of spans, one clock for all ranks, and steps in which a
// message or a rank is made late. A lateness is a sleep, so it is a lower bound of what must be
// found. What else takes time on a busy machine must be small beside it, so where a step looks
// wrong it is run again with a longer sleep, until that must be so; an engine that counts wrongly
// does so however long it lasts.
#include "runtime/engine/exposure.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/faulty.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/job_clock.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/forwarding_fabric.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLatenesses[] = {milliseconds(300), milliseconds(3000), milliseconds(12000)};

double Seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

// What is wrong, empty if nothing is.
class Faults {
 public:
  void Expect(bool good, const std::string& what) {
    if (!good) absl::StrAppend(&text_, text_.empty() ? "" : "; ", what);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

template <typename FaultsOf>
void CheckSoon(const FaultsOf& faults_of) {
  std::string text;
  for (const milliseconds late : kLatenesses) {
    text = faults_of(late);
    if (text.empty()) return;
  }
  FAIL_CHECK(text);
}

CommunicationSpan Sent(int64_t issued, int64_t done, int64_t wait_start, int64_t wait_end,
                       int64_t all_issued = 0) {
  return {.issued_ns = issued,
          .done_ns = done,
          .wait_start_ns = wait_start,
          .wait_end_ns = wait_end,
          .all_issued_ns = all_issued};
}

// Groups::Make agrees on the room for coding.
constexpr uint64_t kSetUpOperations = 1;

// Samples of another dataset, late.
class LateDataset final : public data::Dataset {
 public:
  LateDataset(const data::Dataset& inner, milliseconds late) : inner_(inner), late_(late) {}
  int64_t samples(data::Split split) const override { return inner_.samples(split); }
  void Fill(data::Split split, int64_t sample, std::span<int32_t> tokens,
            std::span<int32_t> targets) const override {
    if (!slept_) std::this_thread::sleep_for(late_);
    slept_ = true;
    inner_.Fill(split, sample, tokens, targets);
  }
  int64_t sequence_length() const override { return inner_.sequence_length(); }
  int64_t tokens(data::Split split) const override { return inner_.tokens(split); }
  void Read(data::Split split, int64_t begin, std::span<int32_t> out) const override {
    inner_.Read(split, begin, out);
  }
  const data::Tokenizer& tokenizer() const override { return inner_.tokenizer(); }

 private:
  const data::Dataset& inner_;
  const milliseconds late_;
  mutable bool slept_ = false;
};

struct StepRun {
  int late_sender = -1;    // rank whose operation below is issued late
  uint64_t operation = 0;  // counted from the first of the step
  int late_loader = -1;    // rank whose LOAD takes long
  milliseconds late{0};
  bool asynchronous = false;
};

struct Measured {
  ExposureReport report;                                // the same on all ranks
  std::vector<std::vector<CommunicationSpan>> by_rank;  // in the order of issue
};

Measured RunOneStep(const Layout& layout, const StepRun& run) {
  const auto dataset = MakeRandomDataset(29, 5);
  const auto plan = plan::MakePlan(JobFor(layout, {}), layout.ranks());
  REQUIRE(plan.ok());
  Measured measured;
  measured.by_rank.resize(static_cast<size_t>(layout.ranks()));
  std::mutex mutex;
  const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& own) -> absl::Status {
    std::vector<comm::Fault> faults;
    if (own.rank() == run.late_sender) {
      faults.push_back({.operation = kSetUpOperations + run.operation, .delay = run.late});
    }
    // MakeFaulty owns its fabric, RunRanks keeps it.
    const auto faulty = comm::MakeFaulty(std::make_unique<ForwardingFabric>(own), faults);
    comm::Fabric& fabric = *faulty;
    const LateDataset late(*dataset, run.late);
    const bool loads_late = fabric.rank() == run.late_loader;
    ASSIGN_OR_RETURN(
        auto engine,
        Engine::Create(
            *plan, fabric, loads_late ? static_cast<const data::Dataset&>(late) : *dataset,
            {.kernels = &KernelsOf(plan->job()), .device = StrictDevice(run.asynchronous)}));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    ASSIGN_OR_RETURN(const ExposureReport report, engine->MeasureExposure());
    const auto spans = engine->last_trace().communications();
    const std::lock_guard lock(mutex);
    measured.report = report;
    measured.by_rank[static_cast<size_t>(fabric.rank())].assign(spans.begin(), spans.end());
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  return measured;
}

// Number of the first operation of `rank` that `predicate` holds for.
template <typename Predicate>
uint64_t OperationOf(const Layout& layout, int rank, const Predicate& predicate) {
  const Measured measured = RunOneStep(layout, {});
  uint64_t number = 0;
  for (const CommunicationSpan& span : measured.by_rank[static_cast<size_t>(rank)]) {
    ++number;
    if (predicate(span)) return number;
  }
  FAIL("the plan has no such operation");
  return 0;
}

void ExpectTransfer(const ExposureReport& report, milliseconds late, Faults& faults) {
  faults.Expect(report.transfer.max_s > Seconds(late) / 2, "transfer misses it");
  faults.Expect(report.transfer.max_s > report.bubble.max_s, "more bubble than transfer");
  faults.Expect(report.exposed.max_s >= report.transfer.max_s, "transfer beyond what is exposed");
}

}  // namespace

TEST_CASE("exposure: outstanding time beside computing counts once") {
  StepTrace trace;
  trace.Reserve(0, 8, 8);
  trace.Add(ComputeSpan{100, 200});
  trace.Add(ComputeSpan{250, 300});
  // Overlapped but for the gap from 200 to 250, in which nobody waited.
  trace.Add(Sent(150, 280, 300, 300));
  // Two at once from 300 to 340; a waiter that woke 10 later than the completion.
  trace.Add(Sent(290, 330, 300, 340));
  trace.Add(Sent(300, 320, 300, 320));
  trace.Add(Sent(400, 0, 0, 0));  // never came to its end
  const Exposure exposure = ExposureOf(trace);
  CHECK(exposure.exposed_ns == 50 + 40);
  CHECK(exposure.bubble_ns == 0);
}

TEST_CASE("exposure: a wait for what is offloaded is its own part, and the parts add up") {
  StepTrace trace;
  trace.Reserve(4, 8, 8);
  trace.Add(ComputeSpan{100, 200});
  // Of 160 in which it waits 10 are computed by another thread.
  trace.Add(OffloadSpan{200, 260});
  trace.Add(ComputeSpan{250, 260});
  trace.Add(OffloadSpan{300, 400});
  trace.Add(OffloadSpan{500, 0});  // never came to its end
  // In flight beside all of it, waited for alone from 260 to 300; the other rank came at 280.
  trace.Add(Sent(150, 350, 260, 300, 280));
  const Exposure exposure = ExposureOf(trace);
  CHECK(exposure.offload_ns == 50 + 100);
  CHECK(exposure.exposed_ns == 40);
  CHECK(exposure.bubble_ns == 20);
  // From 100 to 400, of which 110 are computed.
  CHECK(110 + exposure.exposed_ns + exposure.offload_ns == 300);
  CHECK(trace.Sums().offload_ms == Approx(160e-6));
}

TEST_CASE("exposure: bubble is the wait for ranks that had not come") {
  StepTrace trace;
  trace.Reserve(0, 8, 8);
  trace.Add(ComputeSpan{100, 200});
  trace.Add(ComputeSpan{220, 230});
  // The other rank came at 260; computing in the wait, by another thread, is not exposed.
  trace.Add(Sent(110, 300, 210, 300, 260));
  // It was there before the wait began.
  trace.Add(Sent(300, 350, 310, 350, 305));
  // It came after the end: only the wait counts.
  trace.Add(Sent(350, 360, 350, 360, 999));
  const Exposure exposure = ExposureOf(trace);
  CHECK(exposure.exposed_ns == 20 + 120 + 10);
  CHECK(exposure.bubble_ns == 10 + 30 + 10);
  CHECK(exposure.transfer_ns() == 100);
}

TEST_CASE("exposure: clocks that differ by hours become one") {
  constexpr int kRanks = 6;
  std::vector<int64_t> origins(kRanks), errors(kRanks);
  const auto statuses = comm::RunRanks(kRanks, [&](comm::Fabric& fabric) -> absl::Status {
    const std::vector<int> all = {0, 1, 2, 3, 4, 5};
    ASSIGN_OR_RETURN(auto world, fabric.Group(all, "world"));
    const int64_t skew = fabric.rank() * int64_t{3'600'000'000'000};
    JobClock clock([skew] { return NowNs() + skew; });
    for (int time = 0; time < 2; ++time) {
      RETURN_IF_ERROR(clock.Synchronize(*world, std::chrono::seconds(60)));
    }
    const auto rank = static_cast<size_t>(fabric.rank());
    origins[rank] = clock.ToOwn(0) - skew;
    errors[rank] = clock.round_trip_ns();
    return clock.ToJob(clock.ToOwn(12345)) == 12345 ? absl::OkStatus()
                                                    : absl::InternalError("there and back");
  });
  for (const absl::Status& status : statuses) CHECK(status.ok());
  for (int rank = 1; rank < kRanks; ++rank) {
    // Half of each way between here and rank 0; 5 asks 4, and 4 asks 0.
    int64_t error = 1;
    for (int at = rank; at > 0; at &= at - 1) error += (errors[static_cast<size_t>(at)] + 1) / 2;
    INFO("rank " << rank << " within " << error << " ns");
    CHECK(std::abs(origins[static_cast<size_t>(rank)] - origins[0]) <= error);
  }
}

TEST_CASE("exposure: a slow message is transfer on inline and on asynchronous streams") {
  for (const bool asynchronous : {false, true}) {
    for (const int sender : {0, 1}) {
      const Layout layout{.pipeline = 2};
      const uint64_t operation =
          OperationOf(layout, sender, [](const CommunicationSpan& span) { return span.sends; });
      INFO("asynchronous " << asynchronous << ", sender " << sender);
      CheckSoon([&](milliseconds late) {
        const Measured measured = RunOneStep(layout, {.late_sender = sender,
                                                      .operation = operation,
                                                      .late = late,
                                                      .asynchronous = asynchronous});
        Faults faults;
        ExpectTransfer(measured.report, late, faults);
        // Both ends: who sends cannot go on either, so it is the mean, too.
        faults.Expect(measured.report.transfer.mean_s > Seconds(late) / 4, "not on both ends");
        // The receiver's thread stood in its wait.
        int64_t longest_ns = 0;
        for (const CommunicationSpan& span : measured.by_rank[static_cast<size_t>(1 - sender)]) {
          if (span.peer == sender && !span.sends) {
            longest_ns = std::max(longest_ns, span.wait_end_ns - span.wait_start_ns);
          }
        }
        faults.Expect(longest_ns > late / std::chrono::nanoseconds(2), "the receiver did not wait");
        return faults.text();
      });
    }
  }
}

TEST_CASE("exposure: a slow tensor collective within a forward is seen") {
  for (const bool asynchronous : {false, true}) {
    const Layout layout{.tensor = 2};
    const uint64_t operation = OperationOf(layout, 1, [](const CommunicationSpan& span) {
      return span.kind == v1::F && span.group == GroupName::kTensor;
    });
    INFO("asynchronous " << asynchronous);
    CheckSoon([&](milliseconds late) {
      const ExposureReport report = RunOneStep(layout, {.late_sender = 1,
                                                        .operation = operation,
                                                        .late = late,
                                                        .asynchronous = asynchronous})
                                        .report;
      Faults faults;
      ExpectTransfer(report, late, faults);
      faults.Expect(report.transfer.mean_s > Seconds(late) / 2, "not on both ranks");
      return faults.text();
    });
  }
}

TEST_CASE("exposure: waiting for a rank that still computes is bubble and every rank counts") {
  const auto check = [](const Layout& layout, int late_loader, int waits) {
    for (const bool asynchronous : {false, true}) {
      INFO(layout.Name() << " asynchronous " << asynchronous);
      CheckSoon([&](milliseconds late) {
        const ExposureReport report =
            RunOneStep(layout,
                       {.late_loader = late_loader, .late = late, .asynchronous = asynchronous})
                .report;
        Faults faults;
        faults.Expect(report.bubble.max_s > Seconds(late) / 2, "bubble misses it");
        faults.Expect(report.bubble.max_s > report.transfer.max_s, "more transfer than bubble");
        faults.Expect(report.exposed.max_s >= report.bubble.max_s, "bubble beyond what is exposed");
        // One of two waits, so the mean is half of it, whichever rank reports.
        faults.Expect(report.bubble.mean_s > Seconds(late) / 4, "not every rank counts");
        faults.Expect(report.bubble.mean_s < report.bubble.max_s, "the late rank waits too");
        faults.Expect(report.most_exposed_rank == waits, "another rank is named");
        return faults.text();
      });
    }
  };
  check({.pipeline = 2}, 0, 1);
  check({.data = 2}, 0, 1);
  check({.data = 2}, 1, 0);
}

TEST_CASE("exposure: every communication of a step has its times and its part of the trace") {
  const Layout layout{.data = 2, .tensor = 2, .pipeline = 2, .sequence_parallel = true, .zero = 1};
  for (const bool asynchronous : {false, true}) {
    const Measured measured = RunOneStep(layout, {.asynchronous = asynchronous});
    for (const auto& spans : measured.by_rank) {
      bool tensor_in_backward = false, reduces = false, gathers = false, messages = false;
      for (const CommunicationSpan& span : spans) {
        CHECK(span.issued_ns > 0);
        CHECK(span.done_ns >= span.issued_ns);
        CHECK(span.wait_end_ns >= span.wait_start_ns);
        CHECK(span.wait_start_ns > 0);
        CHECK(span.wait_end_ns >= span.issued_ns);
        CHECK(span.all_issued_ns > 0);
        tensor_in_backward |= span.group == GroupName::kTensor && span.kind == v1::B;
        reduces |= span.kind == v1::REDUCE && span.group == GroupName::kData;
        gathers |= span.kind == v1::GATHER;
        messages |= span.peer >= 0;
      }
      CHECK((tensor_in_backward && reduces && gathers && messages));
    }
  }
}

}  // namespace trireme::engine
