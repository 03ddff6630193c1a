// What several ranks hold alike is compared in NORM: one flipped bit, or a sum that one group left
// out, ends the run with the ranks and the parameter named; sound runs (every other suite of this
// room compares in each step) never do.
#include "runtime/engine/replicas.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "runtime/recorder/flight_recorder.h"
#include "tests/runtime/engine/forwarding_fabric.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"

namespace trireme::engine {

namespace {

constexpr int kComparedEvery = 3;   // steps between comparisons
constexpr uint64_t kFlipAfter = 4;  // the bit is flipped after this many steps
constexpr uint64_t kFoundAt = 6;    // the next step, from 1, that compares
constexpr int kReplicaSteps = 9;

struct Flip {
  Layout layout;
  const char* parameter;
  std::vector<int> ranks;  // whose copy is damaged
  bool asynchronous = false;
  const char* moment = "parameter";  // or the kind of state that is damaged instead
  int64_t every = kComparedEvery;
  const char* dtype = "f64";
};

struct FlipEnded {
  std::vector<absl::Status> of_rank;
  std::vector<uint64_t> steps;  // done by each rank
};

// One bit, in the middle of the mantissa of an element in the middle; of masters one that the
// weight does not have.
void FlipBit(Engine& engine, const Flip& flip) {
  for (const StateView& view : engine.state().Held(flip.moment)) {
    if (view.name != flip.parameter || view.dtype == tensor::DType::kBf16) continue;
    const size_t inside = view.dtype == tensor::DType::kF64 ? 3 : 0;
    engine.OnDevice(
        [&] { view.data.get()[view.size_bytes() / 16 * 8 + inside] ^= std::byte{0x10}; });
    return;
  }
}

FlipEnded RunWithFlip(const Flip& flip, Mutation mutation = Mutation::kCount) {
  v1::JobSpec job = JobFor(flip.layout, {.dtype = flip.dtype, .layers = 2});
  job.mutable_runtime()->set_replica_check_steps(flip.every);
  const auto plan = plan::MakePlan(job, flip.layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  FlipEnded ended;
  ended.steps.resize(static_cast<size_t>(flip.layout.ranks()));
  PlantMutation(mutation);
  ended.of_rank = comm::RunRanks(flip.layout.ranks(), [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset,
                                                 {.kernels = &KernelsOf(job),
                                                  .device = StrictDevice(flip.asynchronous)}));
    engine->InitializeState();
    const bool mine = std::count(flip.ranks.begin(), flip.ranks.end(), fabric.rank()) > 0;
    for (uint64_t step = 0; step < kReplicaSteps; ++step) {
      if (step == kFlipAfter && mine) FlipBit(*engine, flip);
      RETURN_IF_ERROR(engine->RunStep(step).status());
      ++ended.steps[static_cast<size_t>(fabric.rank())];
    }
    return engine->CheckReplicas();
  });
  PlantMutation(Mutation::kCount);
  return ended;
}

// All ranks end in the same step with the same words; those that are named as failed themselves.
std::string ReplicaTextOf(const FlipEnded& ended, uint64_t step, const std::vector<int>& named) {
  std::set<std::string> texts;
  for (size_t rank = 0; rank < ended.of_rank.size(); ++rank) {
    INFO("rank " << rank << ": " << ended.of_rank[rank].ToString());
    CHECK(ended.steps[rank] == step - 1);
    const bool is_named = std::count(named.begin(), named.end(), static_cast<int>(rank)) > 0;
    CHECK(ended.of_rank[rank].code() ==
          (is_named ? absl::StatusCode::kDataLoss : absl::StatusCode::kUnavailable));
    CHECK(base::ExitCodeOf(ended.of_rank[rank]) == base::kJobFailed);
    texts.insert(std::string(ended.of_rank[rank].message()));
  }
  REQUIRE(texts.size() == 1);
  return *texts.begin();
}

// A damaged copy spreads until it is found: what else differs by then is named too.
void CheckNamedReplica(const Flip& flip, const std::vector<int>& named, const std::string& who) {
  INFO(flip.layout.Name() << " " << flip.parameter << (flip.asynchronous ? " async" : ""));
  const std::string text = ReplicaTextOf(RunWithFlip(flip), kFoundAt, named);
  CHECK_THAT(text, Catch::StartsWith(
                       absl::StrCat("silent corruption found at step ", kFoundAt, ": copies of ")));
  const std::string parameters = text.substr(0, text.find(" should be equal"));
  CHECK_THAT(parameters, Catch::Contains(flip.parameter));
  CHECK_THAT(text, Catch::Contains(absl::StrCat(" should be equal to the bit: ", who)));
}

}  // namespace

TEST_CASE("replicas: a flipped bit of a norm is found within k steps and its rank is named") {
  const char* norm = "h.0.ln_1.weight";
  for (const bool asynchronous : {false, true}) {
    CheckNamedReplica({{.tensor = 3}, norm, {1}, asynchronous}, {1},
                      "rank 1 differs from ranks 0, 2");
    CheckNamedReplica({{.data = 2, .tensor = 2}, norm, {2}, asynchronous}, {2},
                      "rank 2 differs from ranks 0, 1, 3");
    CheckNamedReplica({{.data = 3, .pipeline = 2}, norm, {0}, asynchronous}, {0},
                      "rank 0 differs from ranks 1, 2");
    CheckNamedReplica({{.tensor = 3, .sequence_parallel = true}, norm, {2}, asynchronous}, {2},
                      "rank 2 differs from ranks 0, 1");
  }
}

// The weights that products read show it only once the masters have gone apart by a unit of bf16.
TEST_CASE("replicas: in bf16 the masters are compared") {
  for (const bool asynchronous : {false, true}) {
    CheckNamedReplica({.layout = {.data = 3},
                       .parameter = "h.1.mlp.c_fc.weight",
                       .ranks = {1},
                       .asynchronous = asynchronous,
                       .dtype = "bf16"},
                      {1}, "rank 1 differs from ranks 0, 2");
  }
}

TEST_CASE("replicas: with two copies both ranks are named, and that nobody knows which is right") {
  CheckNamedReplica({{.tensor = 2}, "h.1.ln_2.bias", {1}}, {0, 1},
                    "rank 0 against rank 1, with no majority");
  CheckNamedReplica({{.data = 2}, "h.1.attn.c_attn.weight", {0}}, {0, 1},
                    "rank 0 against rank 1, with no majority");
}

TEST_CASE("replicas: a matrix that tensor ranks cut is compared over its replicas") {
  // Ranks 1, 3 and 5 hold the second cut.
  CheckNamedReplica({{.data = 3, .tensor = 2}, "h.1.mlp.c_fc.weight", {3}}, {3},
                    "rank 3 differs from ranks 1, 5");
}

TEST_CASE("replicas: both stages' copies of a tied embedding are compared") {
  CheckNamedReplica({{.pipeline = 2}, "wte.weight", {1}}, {0, 1}, "rank 0 against rank 1");
  CheckNamedReplica({{.data = 2, .pipeline = 2}, "wte.weight", {3}}, {3},
                    "rank 3 differs from ranks 0, 1, 2");
}

TEST_CASE("replicas: several damaged copies of many are named together") {
  CheckNamedReplica({{.data = 5, .micro_batch = 1}, "h.0.ln_1.bias", {1, 3}}, {1, 3},
                    "ranks 1, 3 differ from ranks 0, 2, 4");
}

// Of three numbers the order of addition shows: the groups of one kind at `coordinate` with a
// window, the others without.
void CheckSumsAlike(const Layout& layout, std::string_view kind,
                    uint32_t plan::Coordinates::*coordinate) {
  const OnOneProcessor one;
  // Enough gradients of norms and row biases, too: small sums would add alike anyway.
  v1::JobSpec job = JobFor(layout, {.dtype = "f32", .layers = 16});
  job.mutable_parallelism()->set_bucket_bytes(1 << 20);
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  comm::LocalOptions transport;
  transport.fabric.window_bytes = size_t{512} << 10;
  std::atomic<int> alone = 0;  // ranks whose group has a window where others have none
  const auto run = [&](comm::Fabric& own) -> absl::Status {
    const bool leaves = plan::CoordinatesOf(plan->mesh(), own.rank()).*coordinate == 1;
    ForwardingFabric fabric(own,
                            [&](std::unique_ptr<comm::Communicator> group,
                                std::string_view name) -> std::unique_ptr<comm::Communicator> {
                              if (name == kind && leaves) group->LeaveWindow();
                              if (name == kind && group->SumsInWindow()) ++alone;
                              return std::make_unique<ForwardingCommunicator>(std::move(group));
                            });
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
    engine->InitializeState();
    for (uint64_t step = 0; step < 5; ++step) RETURN_IF_ERROR(engine->RunStep(step).status());
    return absl::OkStatus();
  };
  for (const absl::Status& status : comm::RunRanks(layout.ranks(), run, transport)) {
    CHECK(status.ToString() == "OK");
  }
  CHECK(alone == layout.ranks() / 2);
}

TEST_CASE("replicas: tensor ranks whose data groups differ in their memory add alike") {
  CheckSumsAlike({.data = 3, .tensor = 2, .micro_batch = 1}, "data", &plan::Coordinates::tensor);
}

TEST_CASE("replicas: replicas whose tensor groups differ in their memory add alike") {
  for (const int64_t zero : {0, 1, 3}) {
    CheckSumsAlike({.data = 2, .tensor = 3, .sequence_parallel = true, .zero = zero}, "tensor",
                   &plan::Coordinates::data);
  }
}

// A moment is not compared, but it has changed its weight by the next comparison.
TEST_CASE("replicas: a flipped bit of a moment is found by what it does") {
  CheckNamedReplica(
      {.layout = {.data = 3}, .parameter = "h.0.ln_2.weight", .ranks = {2}, .moment = "moment1"},
      {2}, "rank 2 differs from ranks 0, 1");
}

// The copies that GATHER overwrites by their owner's are whole again after one update, so it must
// be the copy of a part that is compared before: with every step compared, the next one finds it.
TEST_CASE("replicas: under ZeRO-1 a copy is found before GATHER mends it") {
  Flip flip{.layout = {.data = 3, .zero = 1}, .parameter = "h.0.ln_1.weight", .ranks = {1}};
  flip.every = 1;
  const FlipEnded ended = RunWithFlip(flip);
  const std::string text = ReplicaTextOf(ended, kFlipAfter + 1, {1});
  CHECK_THAT(text, Catch::Contains("h.0.ln_1.weight") &&
                       Catch::Contains("rank 1 differs from ranks 0, 2"));
}

TEST_CASE("replicas: a norm's gradient that is not summed under sequence parallelism is seen") {
  Flip flip{.layout = {.tensor = 2, .sequence_parallel = true}, .parameter = "", .ranks = {}};
  flip.every = 1;
  // The first step compares what is still equal, the second what the first one has updated.
  const std::string text =
      ReplicaTextOf(RunWithFlip(flip, Mutation::kMissingSequenceParallelReduce), 2, {0, 1});
  CHECK_THAT(text, Catch::Contains("at step 2") && Catch::Contains("rank 0 against rank 1"));
  flip.layout.data = 2;
  CHECK_THAT(
      ReplicaTextOf(RunWithFlip(flip, Mutation::kMissingSequenceParallelReduce), 2, {0, 1, 2, 3}),
      Catch::Contains("ranks 0, 2 against ranks 1, 3"));
}

TEST_CASE("replicas: weights that are not gathered under ZeRO-1 are seen") {
  Flip flip{.layout = {.data = 3, .zero = 1}, .parameter = "", .ranks = {}};
  flip.every = 1;
  // Each rank is alone with what it owns.
  for (const absl::Status& status : RunWithFlip(flip, Mutation::kStaleGather).of_rank) {
    CHECK_THAT(std::string(status.message()),
               Catch::StartsWith("silent corruption found at step 2: ") &&
                   Catch::Contains("on other ranks, so no single one is at fault"));
  }
}

TEST_CASE("replicas: a tied embedding that is not summed is seen") {
  Flip flip{.layout = {.pipeline = 2}, .parameter = "", .ranks = {}};
  flip.every = 1;
  CHECK_THAT(ReplicaTextOf(RunWithFlip(flip, Mutation::kTiedNotSummed), 2, {0, 1}),
             Catch::Contains("copies of wte.weight should"));
}

// The first rank that leaves ends the job, so whom the launcher will name must stand in its
// recorder before any rank returns.
TEST_CASE("replicas: the named rank's flight recorder says so before any rank leaves") {
  char path[] = "/tmp/trireme_replicas_XXXXXX";
  REQUIRE(mkdtemp(path) != nullptr);
  const std::string folder = path;
  const auto file_of = [&](int rank) { return absl::StrCat(folder, "/", rank); };
  const Layout layout{.data = 3};
  const Flip flip{.layout = layout, .parameter = "h.0.ln_1.weight", .ranks = {2}};
  v1::JobSpec job = JobFor(layout, {.layers = 2});
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  std::vector<recorder::Recording> seen(3);  // of rank 2, as each rank leaves
  const auto statuses = comm::RunRanks(3, [&](comm::Fabric& fabric) -> absl::Status {
    const int rank = fabric.rank();
    ASSIGN_OR_RETURN(auto recorder, recorder::FlightRecorder::Create(file_of(rank), rank, 3));
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset,
                                                 {.kernels = &KernelsOf(job),
                                                  .recorder = recorder.get(),
                                                  .device = StrictDevice(false)}));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    if (rank == 2) FlipBit(*engine, flip);
    const absl::Status failed = engine->RunStep(1).status();
    ASSIGN_OR_RETURN(seen[static_cast<size_t>(rank)], recorder::ReadRecording(file_of(2)));
    return failed;
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    INFO(statuses[rank].ToString());
    CHECK(statuses[rank].code() ==
          (rank == 2 ? absl::StatusCode::kDataLoss : absl::StatusCode::kUnavailable));
    CHECK(seen[rank].state == recorder::RankState::kFailed);
    CHECK(seen[rank].blame == recorder::Blame::kItself);
    CHECK_THAT(seen[rank].failure, Catch::StartsWith("silent corruption found at step 2: ") &&
                                       Catch::Contains("rank 2 differs from ranks 0, 1"));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("replicas: before a checkpoint they are compared whatever the step") {
  Flip flip{.layout = {.tensor = 3}, .parameter = "h.1.ln_1.weight", .ranks = {1}};
  flip.every = 1000;
  const FlipEnded ended = RunWithFlip(flip);
  const std::string text = ReplicaTextOf(ended, kReplicaSteps + 1, {1});
  CHECK_THAT(text, Catch::StartsWith("silent corruption found before a checkpoint: ") &&
                       Catch::Contains("rank 1 differs from ranks 0, 2"));
}

TEST_CASE("replicas: with 0 steps between comparisons there are none") {
  Flip flip{.layout = {.tensor = 3}, .parameter = "h.1.ln_1.weight", .ranks = {1}};
  flip.every = 0;
  for (const absl::Status& status : RunWithFlip(flip).of_rank) CHECK(status.ToString() == "OK");
}

TEST_CASE("replicas: the verdict names a minority, or the sides where there is no majority") {
  const auto text = [](const std::vector<double>& checksums) {
    return JudgeReplicas(checksums).text;
  };
  CHECK(text({7, 7, 9}) == "rank 2 differs from ranks 0, 1");
  // Ranks that hold no copy have no say.
  CHECK(text({-1, 7, -1, 9, 7, -1}) == "rank 3 differs from ranks 1, 4");
  CHECK(text({3, 9, 9, 9, 5}) == "ranks 0, 4 differ from ranks 1, 2, 3");
  CHECK(text({5, -1, 5, 4, 4}) ==
        "ranks 0, 2 against ranks 3, 4, with no majority, so which is right is not known");
  CHECK(text({1, 2, 3}) ==
        "rank 0 against rank 1 against rank 2, with no majority, so which is right is not known");
  std::vector<double> many(3072, 4);
  many[2048] = 5;
  CHECK(text(many) == "rank 2048 differs from ranks 0, 1, 2, 3, 4, 5, 6, 7 and 3063 more");
  CHECK(JudgeReplicas(many).wrong == std::vector<int>{2048});
}

}  // namespace trireme::engine
