// What ranks decide together: a stop that is asked for late, an evaluation that is left, failures
// of one rank that all must hear of, and waiting for a slow disk.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/forwarding_fabric.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/timed_communicator.h"
#include "tests/streams.h"

namespace trireme::engine {

namespace {

using std::chrono::milliseconds;

void OnTwoByTwo(const std::function<absl::Status(Engine&)>& run,
                milliseconds deadline = milliseconds(60000),
                const std::function<ForwardingFabric::Decorate(int rank)>& decorate = {},
                bool asynchronous = false, const std::string& schedule = "1f1b") {
  const Layout layout{.data = 2, .pipeline = 2, .schedule = schedule, .micro_batch = 1};
  v1::JobSpec job = JobFor(layout, {});
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& own) -> absl::Status {
    ForwardingFabric fabric(own, decorate ? decorate(own.rank()) : ForwardingFabric::Decorate());
    EngineOptions options = OptionsOf(job);
    options.device = StrictDevice(asynchronous);
    options.deadline = deadline;
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, options));
    engine->InitializeState();
    RETURN_IF_ERROR(run(*engine));
    return engine->agreement().AllAgree(true).status();
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
}

absl::Status Expect(bool good, const std::string& what) {
  return good ? absl::OkStatus() : absl::InternalError(what);
}

}  // namespace

TEST_CASE("agreement: a stop that is asked for during a step ends with this step") {
  OnTwoByTwo([](Engine& engine) -> absl::Status {
    int asked = 0;
    bool stop = false;
    engine.set_stop_poll([&] {
      ++asked;
      return stop;
    });
    ASSIGN_OR_RETURN(const StepReport quiet, engine.RunStep(0));
    const auto polls = [&](int least) {
      return tests::asynchronous_streams ? asked >= least : asked == least;
    };
    RETURN_IF_ERROR(Expect(!quiet.stop_requested && polls(1), "a stop that nobody asked for"));
    // Only the poll within the step says so, on one rank.
    stop = engine.rank() == 2;
    ASSIGN_OR_RETURN(const StepReport asked_for, engine.RunStep(1));
    return Expect(asked_for.stop_requested && polls(2), "the stop was not heard in its step");
  });
}

TEST_CASE("agreement: an evaluation of several passes is left when one rank is asked to stop") {
  OnTwoByTwo([](Engine& engine) -> absl::Status {
    ASSIGN_OR_RETURN(const double loss, engine.Evaluate(0));
    bool stop = false;
    engine.set_stop_poll([&] { return stop; });
    ASSIGN_OR_RETURN(const double same, engine.Evaluate(0));
    RETURN_IF_ERROR(Expect(loss == same, "polling changed the loss"));
    stop = engine.rank() == 1;
    const absl::Status left = engine.Evaluate(0).status();
    return Expect(absl::IsCancelled(left), left.ToString());
  });
}

TEST_CASE("agreement: the failure of one rank is every rank's, and names it") {
  OnTwoByTwo([](Engine& engine) -> absl::Status {
    RETURN_IF_ERROR(engine.agreement().AllOk(absl::OkStatus()));
    const absl::Status own =
        engine.rank() % 2 == 0 ? absl::OkStatus()
                               : absl::NotFoundError(absl::StrCat("no file here, ", engine.rank()));
    const absl::Status all = engine.agreement().AllOk(own);
    std::string text = absl::StrCat("the text of ", std::string(3000, 'x'), engine.rank());
    RETURN_IF_ERROR(engine.agreement().Share(text));
    RETURN_IF_ERROR(Expect(text.size() == 3013 && text.back() == '0', text));
    return Expect(
        all.code() == absl::StatusCode::kNotFound && all.message() == "rank 1: no file here, 1",
        all.ToString());
  });
}

namespace {

// What each of four ranks waited for, and how long it would have.
class Waits {
 public:
  auto Decorator() {
    return [this](int rank) -> ForwardingFabric::Decorate {
      return [&own = of_rank_[static_cast<size_t>(rank)]](std::unique_ptr<comm::Communicator> group,
                                                          std::string_view name) {
        return std::make_unique<TimedCommunicator>(std::move(group), name, own);
      };
    };
  }
  std::vector<NotedWait>& Of(const Engine& engine) {
    return of_rank_[static_cast<size_t>(engine.rank())];
  }

 private:
  std::vector<std::vector<NotedWait>> of_rank_{4};
};

// Of the rank's last program.
struct OwnTimes {
  std::chrono::nanoseconds slowest{0};  // F, I, W or B
  std::chrono::nanoseconds all{0};
  int64_t norm_ns = 0;  // began; 0: none
};

OwnTimes TimesOf(const Engine& engine) {
  const auto instructions = engine.last_trace().instructions();
  OwnTimes times;
  for (const InstructionSpan& span : instructions) {
    if (span.kind == v1::NORM) times.norm_ns = span.start_ns;
    if (span.kind < v1::F || span.kind > v1::B) continue;
    times.slowest = std::max(times.slowest, std::chrono::nanoseconds(span.end_ns - span.start_ns));
  }
  times.all = std::chrono::nanoseconds(instructions.back().end_ns - instructions.front().start_ns);
  return times;
}

}  // namespace

TEST_CASE("agreement: a rank that is late with its disk is waited for beyond the deadline") {
  constexpr milliseconds kOwn{60'000}, kDisk{1'800'000};
  Waits all;
  OnTwoByTwo(
      [&](Engine& engine) -> absl::Status {
        std::vector<NotedWait>& waits = all.Of(engine);
        const auto expect = [&](milliseconds longest, const std::string& what) {
          const bool good = !waits.empty() && waits.front().deadline == longest;
          waits.clear();
          return Expect(good, what);
        };
        waits.clear();
        RETURN_IF_ERROR(engine.agreement().AllAgree(true).status());
        RETURN_IF_ERROR(expect(kOwn, "AllAgree by the engine's deadline"));
        RETURN_IF_ERROR(engine.agreement().AllAgree(true, kDisk).status());
        RETURN_IF_ERROR(expect(kDisk, "AllAgree by a longer one"));
        RETURN_IF_ERROR(engine.agreement().AllAgree(true, milliseconds(1)).status());
        RETURN_IF_ERROR(expect(kOwn, "AllAgree by a shorter one"));
        RETURN_IF_ERROR(engine.agreement().AllOk(absl::OkStatus(), kDisk));
        return expect(kDisk, "AllOk by a longer one");
      },
      kOwn, all.Decorator());
}

// What patience_test shows of the limits holds for the engine only if its waits ask for them.
void CheckWaits(const std::string& schedule, int stages) {
  constexpr milliseconds kOwn{60'000};
  Waits all;
  OnTwoByTwo(
      [&](Engine& engine) -> absl::Status {
        std::vector<NotedWait>& waits = all.Of(engine);
        const auto first_message = [&] {
          return std::find_if(waits.begin(), waits.end(),
                              [](const NotedWait& wait) { return wait.group == "pipeline"; })
              ->deadline;
        };
        const auto all_beyond = [&](milliseconds message, milliseconds meeting,
                                    const std::string& what) {
          for (const NotedWait& wait : waits) {
            const milliseconds least = wait.group == "pipeline" ? message : meeting;
            RETURN_IF_ERROR(Expect(wait.deadline >= least,
                                   absl::StrCat(what, ": a wait of ", wait.deadline.count(),
                                                " in group ", wait.group)));
          }
          return Expect(waits.size() > 3, what);
        };
        // The second stage waits for one instruction of the first before it knows how long one
        // takes; the first stage has run one before it waits.
        const bool second = engine.rank() >= 2;
        constexpr milliseconds kOne{1};
        waits.clear();
        const int64_t began_ns = NowNs();
        RETURN_IF_ERROR(engine.RunStep(0).status());
        // At least what the engine takes its program to have lasted, however slow the machine is.
        const std::chrono::nanoseconds whole(NowNs() - began_ns);
        RETURN_IF_ERROR(all_beyond(kOwn + kOne, kOwn + kOne, "the first step"));
        RETURN_IF_ERROR(Expect((first_message() == 2 * kOwn) == second, "the first input's wait"));
        const auto message_limit = [=](std::chrono::nanoseconds slowest) {
          return kOwn + std::chrono::ceil<milliseconds>(slowest * (4 * 3 * stages));
        };
        const OwnTimes before = TimesOf(engine);
        const milliseconds message = message_limit(before.slowest);
        waits.clear();
        RETURN_IF_ERROR(engine.RunStep(1).status());
        RETURN_IF_ERROR(all_beyond(message,
                                   message + std::chrono::floor<milliseconds>(before.all * 3),
                                   "the second step"));
        RETURN_IF_ERROR(
            Expect(!second || first_message() == message, "a message, by instructions"));
        // Others are behind by no more than since all ranks met.
        const milliseconds most = message_limit(std::max(before.slowest, TimesOf(engine).slowest));
        for (const NotedWait& wait : waits) {
          const std::chrono::nanoseconds alone(wait.issued_ns - before.norm_ns);
          const auto behind = std::max(alone, whole) * 3;
          RETURN_IF_ERROR(Expect(wait.deadline <= most + std::chrono::ceil<milliseconds>(behind),
                                 "more than three times since all ranks met"));
        }
        waits.clear();
        RETURN_IF_ERROR(engine.Evaluate(0).status());
        return all_beyond(kOwn + kOne, kOwn + kOne, "an evaluation");
      },
      kOwn, all.Decorator(), false, schedule);
}

TEST_CASE("agreement: every wait within a program is as long as the engine's patience") {
  CheckWaits("1f1b", 2);
  // Two virtual stages on each rank.
  CheckWaits("interleaved", 4);
}

// Ranks have met in NORM, and each has updated its weights since.
TEST_CASE("agreement: what ranks do together after a step waits for slower updates") {
  constexpr milliseconds kOwn{60'000};
  Waits all;
  OnTwoByTwo(
      [&](Engine& engine) -> absl::Status {
        std::vector<NotedWait>& waits = all.Of(engine);
        RETURN_IF_ERROR(engine.RunStep(0).status());
        const auto beyond = [&](const absl::Status& done, const std::string& what) -> absl::Status {
          RETURN_IF_ERROR(done);
          for (const NotedWait& wait : waits) {
            RETURN_IF_ERROR(Expect(wait.deadline > kOwn, absl::StrCat(what, ", ", wait.group)));
          }
          const bool any = !waits.empty();
          waits.clear();
          return Expect(any, what + ": no wait");
        };
        waits.clear();
        RETURN_IF_ERROR(beyond(engine.MeasureExposure().status(), "exposure"));
        return beyond(engine.CheckReplicas(), "replicas");
      },
      kOwn, all.Decorator());
}

// On asynchronous streams a wait is issued before it begins, so with the times known by then.
TEST_CASE("agreement: no wait of the first program is issued before its times are known") {
  Waits all;
  OnTwoByTwo(
      [&](Engine& engine) -> absl::Status {
        std::vector<NotedWait>& waits = all.Of(engine);
        waits.clear();
        RETURN_IF_ERROR(engine.RunStep(0).status());
        int64_t last_backward_ns = 0;
        for (const InstructionSpan& span : engine.last_trace().instructions()) {
          if (span.kind == v1::B) last_backward_ns = span.end_ns;
        }
        const auto sums = std::count_if(waits.begin(), waits.end(), [&](const NotedWait& wait) {
          return wait.group == "data" && wait.issued_ns > last_backward_ns;
        });
        return Expect(last_backward_ns > 0 && sums > 1, "sums that were waited for in advance");
      },
      milliseconds(60'000), all.Decorator(), true);
}

// An evaluation is shorter than a step, and its waits on an asynchronous stream are issued ahead.
TEST_CASE("agreement: the waits of a step after an evaluation are those of a step") {
  constexpr milliseconds kOwn{60'000};
  Waits all;
  OnTwoByTwo(
      [&](Engine& engine) -> absl::Status {
        std::vector<NotedWait>& waits = all.Of(engine);
        RETURN_IF_ERROR(engine.RunStep(0).status());
        RETURN_IF_ERROR(engine.RunStep(1).status());
        const OwnTimes step = TimesOf(engine);
        RETURN_IF_ERROR(engine.Evaluate(0).status());
        waits.clear();
        RETURN_IF_ERROR(engine.RunStep(2).status());
        const milliseconds message =
            kOwn + std::chrono::ceil<milliseconds>(step.slowest * (4 * 3 * 2));
        const milliseconds meeting = message + std::chrono::floor<milliseconds>(step.all * 3);
        for (const NotedWait& wait : waits) {
          if (wait.group == "data") {
            RETURN_IF_ERROR(Expect(wait.deadline >= meeting, "a sum by an evaluation's length"));
          }
          if (wait.group == "pipeline") {
            RETURN_IF_ERROR(Expect(wait.deadline >= message, "a message by an evaluation's times"));
          }
        }
        return Expect(waits.size() > 3, "waits");
      },
      kOwn, all.Decorator(), true);
}

}  // namespace trireme::engine
