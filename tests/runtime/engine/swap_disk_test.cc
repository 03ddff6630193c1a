// What an engine does where the disk beneath its offloaded state fails, or one of the ranks waits
// for it: nothing of what was lost is saved, sent or summed, and nobody is given up for it.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/checksum/crc32c.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/swapping.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/forwarding_fabric.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/tensor/sick_disk.h"

namespace trireme::engine {

namespace {

using Catch::Contains;

// In memory, where there is such: dozens of runs would wait for a disk.
EngineOptions InMemory(const v1::JobSpec& job) {
  constexpr const char* kMemory = "/dev/shm";
  EngineOptions options = OptionsOf(job);
  if (access(kMemory, W_OK) == 0) options.offload_folder.path = kMemory;
  return options;
}

// What SyncState says on each rank after a step; `sicken` comes between the two, on rank 0.
std::vector<absl::Status> SyncAfterStep(const Layout& layout, const std::function<void()>& sicken) {
  const v1::JobSpec job = JobFor(layout, {});
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  std::vector<absl::Status> said(static_cast<size_t>(layout.ranks()));
  const auto ended = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, InMemory(job)));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    if (fabric.rank() == 0) sicken();
    RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    said[static_cast<size_t>(fabric.rank())] = engine->SyncState();
    // Whoever leaves with a failure ends the others, and they would tell of that.
    return engine->agreement().AllAgree(true).status();
  });
  for (const absl::Status& status : ended) CHECK(status.ToString() == "OK");
  return said;
}

// Of a process that is stopped during the first wait for it, for so long.
class StoppedStream final : public tensor::Stream {
 public:
  explicit StoppedStream(std::chrono::milliseconds stop) : Stream(nullptr), stop_(stop) {}
  tensor::Event Record() override { return {this, 1}; }
  uint64_t Finished() const override { return waits_ > 1 ? 1 : 0; }
  void Await(uint64_t) override {}
  bool AwaitFor(uint64_t, std::chrono::milliseconds) override {
    if (++waits_ == 1) std::this_thread::sleep_for(stop_);
    return waits_ > 1;
  }
  bool inline_execution() const override { return false; }

 private:
  void Enqueue(tensor::Task task, tensor::MemoryGate*) override { task(); }

  const std::chrono::milliseconds stop_;
  int waits_ = 0;
};

}  // namespace

TEST_CASE("swap disk: time in which the rank was stopped is no silence of its disk") {
  constexpr std::chrono::milliseconds kDeadline{400};
  const auto device = tensor::MakeHostDevice({});
  v1::StagePlan stage;
  stage.set_file_bytes(4096);
  const auto swapping = Swapping::Make(stage, *device,
                                       {.folder = {.path = std::filesystem::temp_directory_path()},
                                        .deadline = kDeadline,
                                        .while_waiting = nullptr});
  REQUIRE(swapping.ok());
  StoppedStream stopped(2 * kDeadline);
  const auto work = tensor::MakeInlineStream();
  (*swapping)->WaitOn(stopped.Record(), *work);
  CHECK((*swapping)->status().ToString() == "OK");
  CHECK_FALSE((*swapping)->stuck());
}

// Between two steps nothing reads what was swapped out but whoever saves.
TEST_CASE("swap disk: state that the disk has lost is told on all ranks before it is saved") {
  const Layout layout{.data = 2, .zero = 1, .offload_state = "file"};
  tensor::SickDisk disk;
  const auto lost = SyncAfterStep(layout, [&] { disk.FailWriteBack(EIO, 1); });
  CHECK(lost[0] == lost[1]);
  for (const absl::Status& status : lost) {
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(status.message()),
               Contains("rank ") && Contains("offload.directory: cannot write"));
  }
  for (const absl::Status& status : SyncAfterStep(layout, [] {})) CHECK(status.ToString() == "OK");
}

namespace {

// Keeps how long others are waited for.
class LimitCommunicator final : public ForwardingCommunicator {
 public:
  LimitCommunicator(std::unique_ptr<comm::Communicator> inner,
                    std::vector<std::chrono::milliseconds>* limits)
      : ForwardingCommunicator(std::move(inner)), limits_(limits) {}
  void WaitOn(comm::Ticket ticket, tensor::Stream& stream,
              std::chrono::milliseconds deadline) override {
    limits_->push_back(deadline);
    ForwardingCommunicator::WaitOn(ticket, stream, deadline);
  }

 private:
  std::vector<std::chrono::milliseconds>* limits_;
};

// Of rank 0's waits in a tensor group, in a step that begins so long after ranks have met.
std::vector<std::chrono::milliseconds> TensorLimits(const Layout& layout,
                                                    std::chrono::milliseconds deadline,
                                                    std::chrono::milliseconds pause) {
  const v1::JobSpec job = JobFor(layout, {});
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  std::vector<std::chrono::milliseconds> limits[2];
  const auto statuses = comm::RunRanks(2, [&](comm::Fabric& fabric) -> absl::Status {
    auto* own = &limits[fabric.rank()];
    ForwardingFabric keeping(
        fabric, [&](auto group, std::string_view name) -> std::unique_ptr<comm::Communicator> {
          if (name != "tensor") return group;
          return std::make_unique<LimitCommunicator>(std::move(group), own);
        });
    EngineOptions options = InMemory(job);
    options.deadline = deadline;
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, keeping, *dataset, options));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    own->clear();
    std::this_thread::sleep_for(pause);
    return engine->RunStep(1).status();
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
  return limits[0];
}

}  // namespace

// Each look at the disk takes 20 ms, and there are dozens.
TEST_CASE("swap disk: waiting for a slow disk is told as such") {
  for (const bool asynchronous : {false, true}) {
    for (const bool state : {false, true}) {
      Layout layout{.schedule = "gpipe", .micro_batch = 1};
      (state ? layout.offload_state : layout.offload_activations) = "file";
      v1::JobSpec job = JobFor(layout, {.layers = 2});
      job.mutable_runtime()->set_asynchronous_streams(asynchronous);
      const auto plan = plan::MakePlan(job, 1);
      REQUIRE(plan.ok());
      const auto dataset = MakeRandomDataset(29, 5);
      const auto statuses = comm::RunRanks(1, [&](comm::Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, InMemory(job)));
        engine->InitializeState();
        RETURN_IF_ERROR(engine->RunStep(0).status());
        tensor::SickDisk disk;
        disk.Slow(std::chrono::milliseconds(20));
        RETURN_IF_ERROR(engine->RunStep(1).status());
        CHECK(engine->last_trace().Sums().offload_ms > 100);
        const Exposure exposure = ExposureOf(engine->last_trace());
        CHECK(exposure.offload_ns > 100 * 1000000);
        CHECK(exposure.exposed_ns < exposure.offload_ns);
        return absl::OkStatus();
      });
      CHECK(statuses[0].ToString() == "OK");
    }
  }
}

// A rank's own disk makes it late, and the others of its tensor group are not told.
TEST_CASE("swap disk: a tensor group waits for the disk of each of its ranks") {
  constexpr std::chrono::milliseconds kDeadline{30000}, kPause{200};
  const Layout plain{.tensor = 2, .schedule = "gpipe", .micro_batch = 1};
  Layout offloaded = plain;
  offloaded.offload_activations = "file";
  const auto bare = TensorLimits(plain, kDeadline, kPause);
  const auto wide = TensorLimits(offloaded, kDeadline, kPause);
  CHECK(std::count(bare.begin(), bare.end(), kDeadline) > 16);
  REQUIRE(wide.size() == bare.size());
  // Four times as slow as this rank is the other one's right.
  for (const auto limit : wide) CHECK(limit >= kDeadline + 3 * kPause);
}

namespace {

// Keeps what came from others, in order, once it was waited for.
class ReceiptCommunicator final : public ForwardingCommunicator {
 public:
  using Receipts = std::vector<uint32_t>;
  ReceiptCommunicator(std::unique_ptr<comm::Communicator> inner, Receipts* receipts)
      : ForwardingCommunicator(std::move(inner)), receipts_(receipts) {}

  comm::Ticket Recv(std::span<std::byte> data, int peer, uint32_t channel,
                    const comm::OperationOptions& options) override {
    const comm::Ticket ticket = ForwardingCommunicator::Recv(data, peer, channel, options);
    coming_[ticket.id] = data;
    return ticket;
  }
  comm::Ticket AllReduce(void* data, int64_t count, tensor::DType dtype, comm::ReduceOp op,
                         const comm::OperationOptions& options) override {
    const comm::Ticket ticket = ForwardingCommunicator::AllReduce(data, count, dtype, op, options);
    const size_t bytes = static_cast<size_t>(count) * tensor::SizeOf(dtype);
    coming_[ticket.id] = {static_cast<std::byte*>(data), bytes};
    return ticket;
  }
  void WaitOn(comm::Ticket ticket, tensor::Stream& stream,
              std::chrono::milliseconds deadline) override {
    ForwardingCommunicator::WaitOn(ticket, stream, deadline);
    const auto come = coming_.find(ticket.id);
    if (come == coming_.end()) return;
    stream.Issue(tensor::Task([this, data = come->second] {
      if (status().ok()) receipts_->push_back(checksum::Crc32c(data));
    }));
    coming_.erase(come);
  }

 private:
  Receipts* receipts_;
  std::map<uint64_t, std::span<std::byte>> coming_;
};

struct Received {
  std::vector<absl::Status> of_rank;
  std::vector<ReceiptCommunicator::Receipts> receipts;  // by rank
};

// Two steps; at the beginning of the second `sicken` is called.
Received TrainTwoSteps(const v1::JobSpec& job, int ranks, const std::function<void()>& sicken) {
  const auto plan = plan::MakePlan(job, ranks);
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  Received received;
  received.receipts.resize(static_cast<size_t>(ranks));
  received.of_rank = comm::RunRanks(ranks, [&](comm::Fabric& fabric) -> absl::Status {
    auto* receipts = &received.receipts[static_cast<size_t>(fabric.rank())];
    // All but those of all ranks, which hold a clock.
    ForwardingFabric keeping(
        fabric, [&](auto group, std::string_view name) -> std::unique_ptr<comm::Communicator> {
          if (name == "world") return group;
          return std::make_unique<ReceiptCommunicator>(std::move(group), receipts);
        });
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, keeping, *dataset, InMemory(job)));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    if (fabric.rank() == 0) sicken();
    RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    return engine->RunStep(1).status();
  });
  return received;
}

}  // namespace

// Whichever of a step's copies fails.
TEST_CASE("swap disk: nothing reaches the other ranks that was computed from what did not come") {
  for (const bool asynchronous : {false, true}) {
    for (const bool replicas : {false, true}) {
      const Layout layout{.data = replicas ? 2 : 1,
                          .pipeline = replicas ? 1 : 2,
                          .schedule = "gpipe",
                          .offload_activations = "file",
                          .micro_batch = 1};
      v1::JobSpec job = JobFor(layout, {.layers = 2});
      job.mutable_runtime()->set_asynchronous_streams(asynchronous);
      const Received sound = TrainTwoSteps(job, 2, [] {});
      for (const absl::Status& status : sound.of_rank) REQUIRE(status.ToString() == "OK");
      int64_t failing = 0;
      for (bool failed = true; failed; ++failing) {
        tensor::SickDisk disk;
        const Received sick = TrainTwoSteps(job, 2, [&] { disk.FailWriteBack(EIO, 1, failing); });
        failed = !sick.of_rank[0].ok();
        for (size_t rank = 0; rank < 2; ++rank) {
          INFO(layout.Name() << ", wait " << failing << ", rank " << rank << ": "
                             << sick.of_rank[rank].ToString());
          CHECK(sick.of_rank[rank].ok() != failed);
          const auto& expected = sound.receipts[rank];
          const auto& got = sick.receipts[rank];
          REQUIRE(got.size() <= expected.size());
          CHECK(std::equal(got.begin(), got.end(), expected.begin()));
        }
      }
      CHECK(failing > 8);
    }
  }
}

}  // namespace trireme::engine
