// A run that is saved in the middle and continued, against the run that never stopped: bit for bit
// on the same layout, within the parity limit on every other layout of four ranks. Dropout is on,
// so masks must continue too.
#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"
#include "tests/sanitizer.h"
#include "tests/streams.h"

namespace trireme::engine {

namespace {

constexpr uint64_t kSteps = 5;
constexpr uint64_t kSavedAt = 2;
constexpr const char* kKinds[] = {"parameter", "moment1", "moment2"};
using State = std::map<std::string, Tensors>;  // by kind

struct Part {
  uint64_t begin = 0, end = kSteps;
  std::string restore;  // a checkpoint folder; empty: initial weights
  std::string root;     // where to save at the end; empty: nowhere
};

struct PartResult {
  State before, after;
  std::vector<double> losses;
  std::string checkpoint;
};

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/trireme_resume_XXXXXX";
    TRIREME_CHECK(mkdtemp(path) != nullptr);
    path_ = path;
  }
  Folder(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string Root(size_t index) const { return absl::StrCat(path_, "/", index); }

 private:
  std::string path_;
};

std::vector<checkpoint::StateShard> Shards(Engine& engine, bool held) {
  std::vector<checkpoint::StateShard> shards;
  for (const char* kind : kKinds) {
    for (const StateView& view : held ? engine.state().Held(kind) : engine.state().Owned(kind)) {
      shards.push_back({.name = view.name,
                        .kind = view.kind,
                        .dtype = view.dtype,
                        .shape = view.shape,
                        .shard = view.shard,
                        .data = {view.data.get(), view.size_bytes()}});
    }
  }
  return shards;
}

void GatherState(Engine& engine, State& into, std::mutex& mutex) {
  for (const char* kind : kKinds) {
    Tensors* tensors = nullptr;
    {
      const std::lock_guard lock(mutex);
      tensors = &into[kind];
    }
    GatherTensors(engine, kind, *tensors, mutex);
  }
}

absl::Status Save(Engine& engine, int ranks, const Part& part, PartResult& result) {
  const bool leader = engine.rank() == 0;
  absl::Status status;
  if (leader) status = checkpoint::CheckpointWriter::Prepare(part.root, part.end).status();
  RETURN_IF_ERROR(engine.agreement().AllAgree(status.ok()).status());
  RETURN_IF_ERROR(status);
  engine.OnDevice([&] {
    status = checkpoint::CheckpointWriter::WriteRank(checkpoint::PartialFolder(part.root, part.end),
                                                     engine.rank(), Shards(engine, false));
  });
  RETURN_IF_ERROR(engine.agreement().AllAgree(status.ok()).status());
  RETURN_IF_ERROR(status);
  if (!leader) return absl::OkStatus();
  ASSIGN_OR_RETURN(result.checkpoint, checkpoint::CheckpointWriter::Commit(
                                          part.root, part.end, {.step = part.end, .ranks = ranks}));
  return absl::OkStatus();
}

PartResult RunPart(const v1::JobSpec& job, int ranks, const data::Dataset& dataset,
                   const Part& part) {
  const auto plan = plan::MakePlan(job, ranks);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  PartResult result;
  std::mutex mutex;
  const auto statuses = comm::RunRanks(ranks, [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, dataset, OptionsOf(job)));
    if (part.restore.empty()) {
      engine->InitializeState();
    } else {
      ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::Open(part.restore));
      absl::Status restored;
      engine->OnDevice([&] { restored = checkpoint.Restore(Shards(*engine, true)); });
      RETURN_IF_ERROR(restored);
    }
    GatherState(*engine, result.before, mutex);
    for (uint64_t step = part.begin; step < part.end; ++step) {
      ASSIGN_OR_RETURN(const StepReport report, engine->RunStep(step));
      if (engine->rank() == 0) result.losses.push_back(report.loss);
    }
    GatherState(*engine, result.after, mutex);
    if (!part.root.empty()) RETURN_IF_ERROR(Save(*engine, ranks, part, result));
    return engine->agreement().AllAgree(true).status();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  return result;
}

// Names of tensors that differ in a bit.
std::string BitsThatDiffer(const State& a, const State& b) {
  std::string text;
  for (const char* kind : kKinds) {
    const Tensors& right = b.at(kind);
    if (a.at(kind).size() != right.size()) absl::StrAppend(&text, " another number of tensors");
    for (const auto& [name, values] : a.at(kind)) {
      const auto found = right.find(name);
      if (found == right.end() || found->second.size() != values.size() ||
          std::memcmp(found->second.data(), values.data(), values.size() * sizeof(double)) != 0) {
        absl::StrAppend(&text, " ", kind, " ", name);
      }
    }
  }
  return text;
}

// Largest differences over the norm of each kind.
std::string BeyondLimit(const PartResult& run, const PartResult& whole, double limit) {
  std::string text;
  for (const char* kind : kKinds) {
    const Tensors& expected = whole.after.at(kind);
    for (const auto& [name, worst] :
         Differences(run.after.at(kind), expected, NormOf(expected), limit)) {
      absl::StrAppend(&text, " ", kind, " ", name, " ", worst);
    }
  }
  for (size_t step = kSavedAt; step < kSteps; ++step) {
    const double difference = std::abs(run.losses[step - kSavedAt] - whole.losses[step]);
    if (!(difference <= 100 * limit))
      absl::StrAppend(&text, " loss of step ", step, " ", difference);
  }
  return text;
}

std::vector<Layout> LayoutsOfFourRanks() {
  std::vector<Layout> all;
  for (int64_t pipeline : {1, 2, 4}) {
    for (int64_t tensor = 1; tensor * pipeline <= 4; tensor *= 2) {
      for (bool sequence : {false, true}) {
        for (int64_t zero : {0, 1, 2, 3}) {
          if (sequence && tensor == 1) continue;
          // One replica has no shares.
          if (zero > 0 && tensor * pipeline == 4) continue;
          all.push_back({.data = 4 / pipeline / tensor,
                         .tensor = tensor,
                         .pipeline = pipeline,
                         .sequence_parallel = sequence,
                         .zero = zero});
        }
      }
    }
  }
  // What is made again, and in which tiles, is no part of the state.
  for (Layout& layout : all) {
    if (layout.zero < 2) continue;
    layout.recompute = layout.tensor > 1 ? "selective" : "full";
    layout.loss_tile = layout.zero == 2 ? 4 : 0;
  }
  // Other orders of compute keep other state in flight at the boundary.
  all.push_back({.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1});
  all.push_back({.data = 2, .pipeline = 2, .zero = 2, .recompute = "selective"});
  all.push_back({.data = 2, .pipeline = 2, .schedule = "interleaved", .zero = 3});
  all.push_back({.data = 4, .zero = 3, .offload_state = "file"});
  all.push_back({.pipeline = 4,
                 .schedule = "gpipe",
                 .offload_state = "host",
                 .offload_activations = "file",
                 .micro_batch = 1});
  // One replica has no shares.
  for (const Layout& layout : all) REQUIRE((layout.zero == 0 || layout.data > 1));
  return all;
}

// A quarter of them, by a hash that spreads it over all axes, and the last two.
std::vector<Layout> QuarterOfLayouts(size_t quarter) {
  const std::vector<Layout> all = LayoutsOfFourRanks();
  std::vector<Layout> some;
  for (size_t index = 0; index < all.size(); ++index) {
    const bool drawn = (index * 2654435761u >> 7) % 4 == quarter;
    if (drawn || index + 2 >= all.size()) some.push_back(all[index]);
  }
  return some;
}

// Runs `job` on every layout in two parts and whole; then continues every checkpoint on the layouts
// `strides` further on. On asynchronous streams, where each task opens and shuts memory, with a
// `quarter` of the layouts and one stride; the quarters of all cases together are all.
void CheckResume(const TinyJobOptions& options, double limit, std::vector<size_t> strides,
                 std::optional<size_t> quarter) {
  const OnOneProcessor one;
  const auto dataset = MakeRandomDataset(29, 5);
  const Folder folder;
  std::vector<Layout> layouts = LayoutsOfFourRanks();
  if (tests::asynchronous_streams && quarter.has_value()) {
    layouts = QuarterOfLayouts(*quarter);
    strides.resize(std::min<size_t>(strides.size(), 1));
  }
  constexpr int kFirst = tests::kThreadSanitizer ? 2 : 4;
  if (tests::kSanitizer) layouts.erase(layouts.begin() + kFirst, layouts.end() - 2);
  std::vector<PartResult> wholes, firsts;
  for (size_t index = 0; index < layouts.size(); ++index) {
    const v1::JobSpec job = JobFor(layouts[index], options);
    wholes.push_back(RunPart(job, 4, *dataset, {}));
    firsts.push_back(RunPart(job, 4, *dataset, {.end = kSavedAt, .root = folder.Root(index)}));
    const PartResult rest =
        RunPart(job, 4, *dataset, {.begin = kSavedAt, .restore = firsts[index].checkpoint});
    INFO(options.family << " " << options.dtype << " " << layouts[index].Name());
    CHECK(BitsThatDiffer(rest.before, firsts[index].after) == "");
    CHECK(BitsThatDiffer(rest.after, wholes[index].after) == "");
    const std::vector<double> tail(wholes[index].losses.begin() + kSavedAt,
                                   wholes[index].losses.end());
    CHECK(rest.losses == tail);
    // The step between must matter, or the comparison proves nothing.
    CHECK(BitsThatDiffer(rest.before, rest.after) != "");
  }
  int moves = 0;
  for (size_t from = 0; from < layouts.size(); ++from) {
    for (size_t stride : strides) {
      const size_t others = layouts.size() - 1;
      const size_t to = (from + 1 + (stride - 1) % others) % layouts.size();
      const PartResult rest = RunPart(JobFor(layouts[to], options), 4, *dataset,
                                      {.begin = kSavedAt, .restore = firsts[from].checkpoint});
      INFO(options.family << " from " << layouts[from].Name() << " to " << layouts[to].Name());
      CHECK(BitsThatDiffer(rest.before, firsts[from].after) == "");
      CHECK(BeyondLimit(rest, wholes[from], limit) == "");
      ++moves;
    }
  }
  std::cout << "resume " << options.family << " " << options.dtype << ": " << layouts.size()
            << " layouts, " << moves << " moves between layouts" << std::endl;
}

std::vector<size_t> AllStrides() {
  std::vector<size_t> strides;
  for (size_t stride = 1; stride < LayoutsOfFourRanks().size(); ++stride) strides.push_back(stride);
  return strides;
}

}  // namespace

TEST_CASE("resume: gpt2 with dropout on the same layout and two others each") {
  CheckResume({.family = "gpt2", .dropout = 0.1}, 1e-12, {1, 7}, 0);
}

TEST_CASE("resume: llama on the same layout and one other each") {
  CheckResume({.family = "llama"}, 1e-12, {9}, 1);
}

TEST_CASE("resume: f32 on the fast kernels is bit-exact on the same layout") {
  CheckResume({.family = "gpt2", .dtype = "f32", .dropout = 0.1}, 1e-5, {5}, 2);
}

// What is stored are the masters; the weights are these rounded.
TEST_CASE("resume: bf16 is bit-exact on the same layout") {
  CheckResume({.family = "gpt2", .dtype = "bf16", .dropout = 0.1}, 0.02, {7}, 3);
}

// Its bounds come from the moments, which a checkpoint holds.
TEST_CASE("resume: with compression it is bit-exact on the same layout") {
  CheckResume({.family = "gpt2", .dtype = "f32", .dropout = 0.1, .compression = "on"}, 0, {}, 0);
}

TEST_CASE("resume: with gradients as bf16 it is bit-exact on the same layout") {
  CheckResume({.family = "gpt2", .dtype = "f32", .dropout = 0.1, .gradient_transfer = "bf16"}, 0,
              {}, 1);
}

TEST_CASE("resume: gpt2 from every layout of four ranks on every other", "[slow][products]") {
  CheckResume({.family = "gpt2", .dropout = 0.1}, 1e-12, AllStrides(), std::nullopt);
}

TEST_CASE("resume: llama from every layout of four ranks on every other", "[slow][products]") {
  CheckResume({.family = "llama"}, 1e-12, AllStrides(), std::nullopt);
}

}  // namespace trireme::engine
