// Plans as text and pictures: what must be in them, that they fit, and that they stay small.
#include "runtime/report/plan_view.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>
#include <string>

#include "runtime/plan/memory_plan.h"
#include "runtime/plan/planner.h"
#include "runtime/report/schedule_svg.h"
#include "tests/runtime/plan/sample_jobs.h"
#include "tests/runtime/plan/sample_plan.h"

namespace trireme::report {
namespace {

using Catch::Contains;

v1::Plan Sample(const char* schedule, uint32_t ranks, uint32_t count, uint32_t stages = 1) {
  v1::Plan plan = plan::SamplePlan(schedule, {ranks, count, stages});
  plan.mutable_job()->set_name("demo");
  return plan;
}

// Characters, not bytes, without escape sequences.
size_t WidthOf(const std::string& line) {
  size_t columns = 0;
  bool escape = false;
  for (const char c : line) {
    if (c == '\x1b') escape = true;
    if (!escape && (c & 0xC0) != 0x80) ++columns;
    if (escape && c == 'm') escape = false;
  }
  return columns;
}

size_t Widest(const std::string& text) {
  size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, WidthOf(line));
  return widest;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_CASE("the picture of 1f1b on two ranks, cell by cell") {
  const std::string text = DescribePlan(Sample("1f1b", 2, 2), {.width = 100, .unicode = false});
  CHECK_THAT(text, Contains("stage 0 | F0F1....B0--..B1--\n"));
  CHECK_THAT(text, Contains("stage 1 | ..F0B0--F1B1--....\n"));
}

TEST_CASE("a split backward shows I and W, interleaving shows lower case") {
  CHECK_THAT(DescribePlan(Sample("zb-h1", 2, 3), {}), Contains("I0") && Contains("W2"));
  CHECK_THAT(DescribePlan(Sample("interleaved", 2, 4, 2), {}), Contains("f0") && Contains("b3"));
}

TEST_CASE("the text fits its width and cuts the picture with dots") {
  for (const int width : {60, 80, 100, 160}) {
    for (const bool color : {false, true}) {
      const std::string text =
          DescribePlan(Sample("1f1b", 4, 64), {.width = width, .color = color});
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) {
        if (line.find("rank ") == 0) {
          CHECK(WidthOf(line) <= static_cast<size_t>(width));
          CHECK_THAT(line, Catch::EndsWith("..."));
        }
      }
    }
  }
  CHECK(Widest(DescribePlan(Sample("1f1b", 96, 8), {.width = 100})) <= 100);
  const std::string ascii = DescribePlan(Sample("zb-h1", 4, 8), {.unicode = false});
  CHECK(std::all_of(ascii.begin(), ascii.end(), [](char c) { return (c & 0x80) == 0; }));
}

TEST_CASE("equal stages of a large job share a line") {
  v1::Plan plan = Sample("1f1b", 96, 16);
  plan.mutable_mesh()->set_data(8);
  plan.mutable_mesh()->set_tensor(4);
  const std::string text = DescribePlan(plan, {});
  CHECK_THAT(text, Contains("3,072 ranks: pipeline 96, data 8, tensor 4"));
  CHECK_THAT(text,
             Contains("stages 1-94") && Contains("ranks 32-3039") && Contains("2 layers each"));
  CHECK_THAT(text, Contains("80 stages between"));
  CHECK(std::count(text.begin(), text.end(), '\n') < 50);
}

TEST_CASE("offloaded activations are told of where some move, and that none do where none do") {
  v1::JobSpec job = plan::SmallJob();
  job.mutable_training()->set_global_batch_size(16);
  job.mutable_offload()->set_activations("file");
  const auto described = [&](const char* schedule) {
    job.mutable_parallelism()->set_schedule(schedule);
    const auto plan = plan::MakePlan(job, 4);
    REQUIRE(plan.ok());
    return DescribePlan(*plan, {});
  };
  constexpr const char* kMoves = ", activations offloaded to a file\n";
  constexpr const char* kStays = ", activations: nothing to move in this schedule\n";
  CHECK_THAT(described("gpipe"), Contains(kMoves) && !Contains(kStays));
  CHECK_THAT(described("1f1b"), Contains(kStays) && !Contains(kMoves));
  job.mutable_offload()->set_activations("none");
  CHECK_THAT(described("1f1b"), !Contains("activations: nothing to move"));
}

TEST_CASE(
    "pieces of offloaded state are as large as told, and where they save nothing it is said") {
  v1::JobSpec job = plan::SmallJob();
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_hidden_size(32);
  config.set_head_dim(16);
  const auto planned = [&] {
    auto plan = plan::MakePlan(job, 4);
    INFO(plan.status().ToString());
    REQUIRE(plan.ok());
    return *std::move(plan);
  };
  const auto largest_arena = [](const v1::Plan& plan) {
    return std::max(plan.stages(0).arena_bytes(), plan.stages(1).arena_bytes());
  };
  const uint64_t plain = largest_arena(planned());
  job.mutable_offload()->set_optimizer_state("file");
  job.mutable_offload()->set_piece_bytes(10'000'000);
  const v1::Plan wide = planned();
  CHECK(largest_arena(wide) + plan::kPageBytes >= plain);  // but for rounding
  uint64_t piece = 0;
  for (const v1::StagePlan& stage : wide.stages()) {
    for (const v1::Pool& pool : stage.pools()) {
      if (pool.kind() == v1::UPDATE) piece = std::max(piece, pool.slot_bytes());
    }
  }
  CHECK(piece < 10'000'000);
  const std::string text = DescribePlan(wide, {});
  CHECK_THAT(text, Contains("offloaded to a file in pieces of " + ReadableBytes(piece)));
  // With the value that is named it does save.
  const std::string before =
      "\noptimizer offload saves nothing, all is at hand; use offload.piece_bytes=";
  const size_t at = text.find(before);
  REQUIRE(at != std::string::npos);
  job.mutable_offload()->set_piece_bytes(std::stoll(text.substr(at + before.size())));
  CHECK(largest_arena(planned()) < plain);
  CHECK_THAT(DescribePlan(planned(), {}), !Contains("saves nothing"));
}

TEST_CASE("what numbers are of, and the tiles of the loss, are told") {
  v1::JobSpec job = plan::SmallJob();
  const auto described = [&] {
    const auto plan = plan::MakePlan(job, 4);
    REQUIRE(plan.ok());
    const std::string text = DescribePlan(*plan, {});
    const size_t header = text.find("\n\n");
    CHECK(Widest(text.substr(0, header)) <= 80);
    return text;
  };
  CHECK_THAT(described(), Contains(", 29 tokens, f32\n") && !Contains("\nloss "));
  job.mutable_training()->set_dtype("bf16");
  job.mutable_training()->set_loss_tile_rows(3);
  CHECK_THAT(described(), Contains(", 29 tokens, bf16\n") &&
                              Contains("\nloss      in tiles of 3 of a micro-batch's 8 rows\n"));
}

TEST_CASE("what lies outside the arena is in no total of it, and one number everywhere") {
  v1::JobSpec job = plan::SmallJob();
  for (const char* place : {"host", "file"}) {
    job.mutable_offload()->set_optimizer_state(place);
    const auto plan = plan::MakePlan(job, 4);
    REQUIRE(plan.ok());
    uint64_t most = 0;
    for (const v1::StagePlan& stage : plan->stages()) {
      CHECK(BytesOf(stage).host == stage.host_bytes());
      CHECK(BytesOf(stage).file == stage.file_bytes());
      most = std::max(most, stage.file_bytes());
    }
    const std::string text = DescribePlan(*plan, {});
    CHECK_THAT(text, Contains("\n  in the arena") && !Contains("\n  total"));
    CHECK_THAT(text, !Contains("on disk"));
    if (most > 0) {
      CHECK_THAT(text, Contains("\nin a file at most " + ReadableBytes(most) + " per rank"));
    }
  }
}

TEST_CASE("snapshots are told beside the arena, and are in the sum of memory") {
  v1::JobSpec job = plan::SmallJob();
  job.mutable_snapshots()->set_every_step(true);
  const auto plan = plan::MakePlan(job, 4);
  REQUIRE(plan.ok());
  uint64_t most = 0;
  for (const v1::StagePlan& stage : plan->stages()) {
    CHECK(BytesOf(stage).snapshots == stage.snapshot_bytes());
    CHECK(BytesOf(stage).optimizer == 0);
    CHECK(BytesOf(stage).total == stage.arena_bytes());
    most = std::max(most, stage.arena_bytes() + stage.snapshot_bytes());
  }
  const std::string text = DescribePlan(*plan, {});
  CHECK_THAT(text, Contains("\n  in snapshots") && Contains("4.00 MiB"));
  CHECK_THAT(text, Contains("at most " + ReadableBytes(most) + " per rank"));
}

TEST_CASE("a lone micro-batch is one, and ZeRO of one replica is told to do nothing") {
  v1::JobSpec job = plan::SmallJob();
  job.mutable_parallelism()->set_zero_stage(3);
  const auto described = [&](int ranks) {
    const auto plan = plan::MakePlan(job, ranks);
    REQUIRE(plan.ok());
    return DescribePlan(*plan, {});
  };
  constexpr const char* kIdle = "\nZeRO      zero_stage 3 has no effect: there is one replica\n";
  CHECK_THAT(described(2), Contains(kIdle) && Contains("\nbatch     4 micro-batches of 1 "));
  CHECK_THAT(described(4), !Contains("\nZeRO "));
  job.mutable_training()->set_micro_batch_size(4);
  CHECK_THAT(described(2), Contains("\nbatch     1 micro-batch of 4 per replica and step"));
}

TEST_CASE("bytes by kind add up to the arena") {
  const v1::Plan plan = Sample("1f1b", 2, 4);
  const StageBytes bytes = BytesOf(plan.stages(0));
  CHECK(bytes.parameters == 4096);
  CHECK(bytes.optimizer == 8192);
  CHECK(bytes.activations == 3 * 4 * 256);  // ACTIVATION, STASH and GRADIENT_STASH
  CHECK(bytes.boundaries == 4 * 4 * 256);
  CHECK(bytes.parameters + bytes.gradients + bytes.optimizer + bytes.activations +
            bytes.boundaries + bytes.temporaries + bytes.scratch + bytes.other ==
        plan.stages(0).arena_bytes());
}

TEST_CASE("blocks are named by what they hold") {
  CHECK(NameBlocks(0, 3, 4) == "embedding, layers 1-2");
  CHECK(NameBlocks(3, 6, 4) == "layers 3-4, head");
  CHECK(NameBlocks(0, 6, 4) == "embedding, layers 1-4, head");
  CHECK(NameBlocks(2, 3, 4) == "layer 2");
  CHECK(NameBlocks(0, 1, 4) == "embedding");
  CHECK(NameBlocks(5, 6, 4) == "head");
  CHECK(ReadableCount(3072) == "3,072");
  CHECK(ReadableCount(999) == "999");
}

TEST_CASE("a plan whose order cannot run is still described") {
  v1::Plan plan = Sample("1f1b", 2, 2);
  plan.mutable_stages(1)->mutable_step()->clear_instructions();
  CHECK_THAT(DescribePlan(plan, {}), Contains("no picture of the schedule: rank 1"));
  CHECK(ScheduleSvg(plan).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("the SVG holds a cell per compute instruction and escapes names") {
  v1::Plan plan = Sample("zb-h1", 4, 8);
  const std::string svg = *ScheduleSvg(plan);
  CHECK(Count(svg, "<rect class=\"tr-idle\"") == 4);
  CHECK(Count(svg, "fill=\"#2d69b2\"/>") == 4 * 8 + 1);  // forwards, and the legend's
  CHECK(Count(svg, "<svg") == Count(svg, "</svg>"));
  plan.set_schedule("<b>&");
  CHECK_THAT(*ScheduleSvg(plan), Contains("&lt;b&gt;&amp;") && !Contains("<b>"));
}

TEST_CASE("the SVG of a long step on many ranks stays small") {
  const std::string svg = *ScheduleSvg(Sample("1f1b", 32, 256));
  CHECK(svg.size() < 1u << 20);
  CHECK_THAT(svg, Contains("16 stages between") && Contains("&#8943;"));
}

}  // namespace
}  // namespace trireme::report
