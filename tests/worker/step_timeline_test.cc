// A step's timeline is written beside the steps: what is newest is there in the end, and a disk
// that refuses keeps nobody.
#include "worker/step_timeline.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "runtime/base/whole_file.h"
#include "tests/temporary_folder.h"

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;

// A message of the step, issued at `step`.
engine::StepTrace TraceOf(int64_t step) {
  engine::StepTrace trace;
  trace.Reserve(0, 1, 1);
  trace.Add(engine::CommunicationSpan{.issued_ns = step, .done_ns = step + 1});
  return trace;
}

engine::JobClock Clock() {
  return engine::JobClock([] { return int64_t{0}; });
}

TEST_CASE("timeline: of steps that come faster than the disk the newest is written, whole") {
  const tests::TemporaryFolder run;
  const std::string file = run.path() + "/timeline/rank-003.steps";
  constexpr int64_t kSteps = 500;
  {
    StepTimeline timeline(run.path(), 3);
    for (int64_t step = 1; step <= kSteps; ++step) {
      timeline.Keep(static_cast<uint64_t>(step), TraceOf(step), Clock());
      if (!fs::exists(file)) continue;
      const auto text = base::ReadWholeFile(file);
      REQUIRE(text.ok());
      INFO(*text);
      REQUIRE(text->rfind("step ", 0) == 0);
      REQUIRE(text->back() == '\n');
    }
  }
  const std::string text = base::ReadWholeFile(file).value();
  CHECK(text.rfind("step 500 rank 3\n", 0) == 0);
  CHECK_THAT(text, Catch::Contains(" 500 501 "));
  RemoveTimelines(run.path());
  CHECK_FALSE(fs::exists(file));
}

TEST_CASE("timeline: a folder that cannot be written holds up nothing") {
  const tests::TemporaryFolder run;
  REQUIRE(base::WriteWholeFile(run.path() + "/file", "no folder").ok());
  StepTimeline timeline(run.path() + "/file", 0);
  for (uint64_t step = 1; step <= 100; ++step) timeline.Keep(step, TraceOf(1), Clock());
}

TEST_CASE("timeline: one step of each second is due") {
  StepTimeline timeline("/nowhere", 0);
  CHECK(timeline.IsDue(0.1));
  CHECK_FALSE(timeline.IsDue(0.9));
  CHECK(timeline.IsDue(1.0));
  CHECK(timeline.IsDue(7.5));
  CHECK_FALSE(timeline.IsDue(7.6));
}

}  // namespace
}  // namespace trireme::worker
