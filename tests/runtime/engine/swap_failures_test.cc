// Disks that fail, fall silent or are slow beneath what is offloaded: what is told, that nothing
// works on what did not come, and that every rank ends.
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/swapping.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/tensor/sick_disk.h"

namespace trireme::engine {

namespace {

using Catch::Contains;
using std::chrono::milliseconds;

// A disk that hangs answers again after a while, so that a program that waits for it for ever fails
// here and does not hang: Waited says so.
class HangingDisk {
 public:
  HangingDisk() {
    disk_.Hang(true);
    guard_ = std::thread([this] {
      for (int i = 0; i < 2000 && !over_; ++i) std::this_thread::sleep_for(milliseconds(10));
      waited_ = !over_;
      disk_.Hang(false);
    });
  }
  ~HangingDisk() {
    over_ = true;
    guard_.join();
  }
  bool Waited() const { return waited_; }

 private:
  tensor::SickDisk disk_;
  std::atomic<bool> over_{false}, waited_{false};
  std::thread guard_;
};

// An arena and a file of as many bytes, and what moves between them.
struct Bench {
  explicit Bench(size_t bytes, milliseconds deadline) {
    v1::StagePlan stage;
    stage.set_file_bytes(bytes);
    auto made = Swapping::Make(
        stage, *device,
        {.folder = {.path = "/tmp"}, .deadline = deadline, .while_waiting = nullptr});
    REQUIRE(made.ok());
    swapping = *std::move(made);
    places = swapping->TakePlaces();
    auto mapped = device->Allocate(bytes, 0);
    REQUIRE(mapped.ok());
    arena = *std::move(mapped);
  }
  SwapCopy Bytes(size_t begin, size_t count) const {
    return {arena->base() + begin, places[v1::FILE]->base() + begin, count};
  }
  std::byte At(size_t index) const { return arena->base().get()[index]; }

  std::unique_ptr<tensor::Device> device = tensor::MakeHostDevice({});
  std::unique_ptr<tensor::DeviceMemory> arena;
  Swapping::Places places;
  std::unique_ptr<Swapping> swapping;
};

constexpr size_t kMiB = size_t{1} << 20;
constexpr milliseconds kNeverSilent{3600000};

}  // namespace

TEST_CASE("swap failure: nothing is copied behind one that failed, and the first is told") {
  Bench bench(kMiB, kNeverSilent);
  bench.swapping->Copy(true, bench.Bytes(0, kMiB));
  REQUIRE(bench.swapping->Finish().ok());
  std::fill_n(bench.arena->base().get(), kMiB, std::byte{7});
  tensor::SickDisk disk;
  disk.FailWriteBack(EIO, 1);
  bench.swapping->Copy(false, bench.Bytes(0, 4096));
  bench.swapping->Copy(false, bench.Bytes(8192, 4096));
  for (int time = 0; time < 2; ++time) {
    const absl::Status status = bench.swapping->Finish();
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(status.message()), Contains("cannot write in /tmp"));
    CHECK(bench.swapping->failed());
  }
  CHECK_FALSE(bench.swapping->stuck());
  CHECK(bench.At(8192) == std::byte{7});
  CHECK(bench.At(12287) == std::byte{7});
}

// Each call takes a fifth of the deadline, all of them more than twice it.
TEST_CASE("swap failure: a slow disk is waited for as long as it answers") {
  constexpr milliseconds kDeadline{1000};
  Bench bench(48 * kMiB, kDeadline);
  bench.arena->base().get()[kMiB] = std::byte{5};
  tensor::SickDisk disk;
  disk.Slow(kDeadline / 5);
  bench.swapping->Copy(true, bench.Bytes(0, 48 * kMiB));
  bench.swapping->Copy(false, bench.Bytes(0, 48 * kMiB));
  const auto stream = tensor::MakeInlineStream();
  bench.swapping->WaitOn(bench.swapping->Record(), *stream);
  CHECK(bench.swapping->status().ToString() == "OK");
  CHECK_FALSE(bench.swapping->stuck());
  CHECK(bench.At(kMiB) == std::byte{5});
}

TEST_CASE("swap failure: a silent disk is told, and not waited for again") {
  Bench bench(kMiB, milliseconds(100));
  {
    HangingDisk disk;
    bench.swapping->Copy(true, bench.Bytes(0, kMiB));
    const auto stream = tensor::MakeThreadStream();
    bench.swapping->WaitOn(bench.swapping->Record(), *stream);
    stream->Synchronize();
    CHECK(bench.swapping->stuck());
    const absl::Status status = bench.swapping->Finish();
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(status.message()), Contains("the disk of /tmp has not answered for") &&
                                                  Contains("runtime.deadline_seconds"));
    CHECK_FALSE(disk.Waited());
  }
  // Its thread ends with what it was held in, and only then may the memory go.
  bench.swapping.reset();
}

namespace {

struct Ended {
  std::vector<absl::Status> of_rank;
  std::vector<Tensors> before, after;  // weights, by rank
};

// One step is sound, the next begins with `sicken`, on one of the ranks.
Ended RunIntoFailure(const Layout& layout, bool asynchronous, const std::function<void()>& sicken) {
  v1::JobSpec job = JobFor(layout, {.layers = 4});
  job.mutable_runtime()->set_asynchronous_streams(asynchronous);
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  Ended ended;
  ended.before.resize(static_cast<size_t>(layout.ranks()));
  ended.after = ended.before;
  ended.of_rank = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) -> absl::Status {
    EngineOptions options = OptionsOf(job);
    options.deadline = milliseconds(20000);
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, options));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    const auto rank = static_cast<size_t>(fabric.rank());
    std::mutex mutex;
    GatherTensors(*engine, "parameter", ended.before[rank], mutex);
    if (rank == 0) sicken();
    RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    const absl::Status status = engine->RunStep(1).status();
    GatherTensors(*engine, "parameter", ended.after[rank], mutex);
    return status;
  });
  return ended;
}

}  // namespace

TEST_CASE("swap failure: a disk that fails ends its rank, and with it the others at once") {
  for (const bool asynchronous : {false, true}) {
    for (const std::string place : {"state", "activations"}) {
      Layout layout{.pipeline = 2, .schedule = "gpipe", .micro_batch = 1};
      (place == "state" ? layout.offload_state : layout.offload_activations) = "file";
      tensor::SickDisk disk;
      const Ended ended = RunIntoFailure(layout, asynchronous, [&] { disk.FailWriteBack(EIO, 1); });
      INFO(place << (asynchronous ? ", asynchronous: " : ": ") << ended.of_rank[0].ToString()
                 << " / " << ended.of_rank[1].ToString());
      int own = 0;
      for (const absl::Status& status : ended.of_rank) {
        own += status.code() == absl::StatusCode::kDataLoss ? 1 : 0;
        // Moments come while the ranks agree on the norm: the other may have ended its step.
        if (place == "state" && status.ok()) continue;
        CHECK_THAT(std::string(status.message()), Contains("offload.directory: cannot write"));
      }
      CHECK(own == 1);
    }
  }
}

TEST_CASE("swap failure: nothing is updated by moments that did not come") {
  for (const bool asynchronous : {false, true}) {
    tensor::SickDisk disk;
    const Ended ended = RunIntoFailure({.offload_state = "file"}, asynchronous,
                                       [&] { disk.FailWriteBack(EIO, 1); });
    CHECK(ended.of_rank[0].code() == absl::StatusCode::kDataLoss);
    CHECK(ended.before[0].size() > 20);
    CHECK(ended.after[0] == ended.before[0]);
  }
}

TEST_CASE("swap failure: an engine whose disk hangs is left without waiting for it") {
  for (const bool asynchronous : {false, true}) {
    v1::JobSpec job = JobFor({.offload_state = "file"}, {.layers = 2});
    job.mutable_runtime()->set_asynchronous_streams(asynchronous);
    const auto plan = plan::MakePlan(job, 1);
    REQUIRE(plan.ok());
    const auto dataset = MakeRandomDataset(29, 5);
    std::unique_ptr<HangingDisk> disk;
    const auto statuses = comm::RunRanks(1, [&](comm::Fabric& fabric) -> absl::Status {
      EngineOptions options = OptionsOf(job);
      options.deadline = milliseconds(500);
      ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, options));
      engine->InitializeState();
      RETURN_IF_ERROR(engine->RunStep(0).status());
      disk = std::make_unique<HangingDisk>();
      return engine->RunStep(1).status();
    });
    CHECK(statuses[0].code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(statuses[0].message()), Contains("has not answered for 0.5 s"));
    REQUIRE(disk != nullptr);
    CHECK_FALSE(disk->Waited());
  }
}

}  // namespace trireme::engine
