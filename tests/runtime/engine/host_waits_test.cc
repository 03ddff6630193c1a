// The host waits once in a step, at its end: every wait of the engine's thread for a stream of the
// device or for peers is counted, but for those of tasks that an inline stream runs there.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "runtime/tensor/device.h"
#include "tests/runtime/engine/forwarding_fabric.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

// Of one rank. Only its engine's thread writes the counts.
struct HostWaits {
  const std::thread::id host = std::this_thread::get_id();
  int in_task = 0;  // of inline streams, on the host's thread
  int for_work = 0, for_transfers = 0, for_peers = 0;

  bool OfHost() const { return std::this_thread::get_id() == host && in_task == 0; }
  void Count(int HostWaits::*kind) {
    if (OfHost()) ++(this->*kind);
  }
};

class CountingStream final : public tensor::Stream {
 public:
  CountingStream(std::unique_ptr<tensor::Stream> inner, HostWaits& waits, int HostWaits::*kind)
      : Stream(inner->gate()), inner_(std::move(inner)), waits_(waits), kind_(kind) {}

  tensor::Event Record() override { return {this, inner_->Record().sequence}; }
  uint64_t Finished() const override { return inner_->Finished(); }
  void Await(uint64_t sequence) override {
    waits_.Count(kind_);
    inner_->Await(sequence);
  }
  // A long wait is one in several calls.
  bool AwaitFor(uint64_t sequence, std::chrono::milliseconds limit) override {
    if (waits_.OfHost() && std::exchange(awaited_, sequence) != sequence) waits_.Count(kind_);
    return inner_->AwaitFor(sequence, limit);
  }
  bool inline_execution() const override { return inner_->inline_execution(); }

 private:
  void Enqueue(tensor::Task task, tensor::MemoryGate* gate) override {
    const bool here = inner_->inline_execution();
    waits_.in_task += here ? 1 : 0;
    gate != nullptr ? inner_->Issue(task) : inner_->IssueAside(task);
    waits_.in_task -= here ? 1 : 0;
  }

  const std::unique_ptr<tensor::Stream> inner_;
  HostWaits& waits_;
  int HostWaits::*const kind_;
  uint64_t awaited_ = UINT64_MAX;  // by the host
};

class CountingDevice final : public tensor::Device {
 public:
  CountingDevice(std::unique_ptr<tensor::Device> inner, HostWaits& waits)
      : inner_(std::move(inner)), waits_(waits) {}

  absl::StatusOr<std::unique_ptr<tensor::DeviceMemory>> Allocate(size_t bytes,
                                                                 int prefault_threads) override {
    return inner_->Allocate(bytes, prefault_threads);
  }
  std::unique_ptr<tensor::DeviceMemory> Adopt(tensor::HostPages pages) override {
    return inner_->Adopt(std::move(pages));
  }
  std::unique_ptr<tensor::Stream> MakeStream(size_t queue_capacity,
                                             std::function<void()> while_waiting) override {
    return std::make_unique<CountingStream>(
        inner_->MakeStream(queue_capacity, std::move(while_waiting)), waits_, &HostWaits::for_work);
  }
  std::unique_ptr<tensor::Stream> MakeTransferStream(size_t queue_capacity,
                                                     std::function<void()> while_waiting) override {
    return std::make_unique<CountingStream>(
        inner_->MakeTransferStream(queue_capacity, std::move(while_waiting)), waits_,
        &HostWaits::for_transfers);
  }
  void CopyToHost(tensor::DevicePointer from, std::span<std::byte> to,
                  tensor::Stream& stream) override {
    inner_->CopyToHost(from, to, stream);
  }
  void CopyFromHost(std::span<const std::byte> from, tensor::DevicePointer to,
                    tensor::Stream& stream) override {
    inner_->CopyFromHost(from, to, stream);
  }

 private:
  const std::unique_ptr<tensor::Device> inner_;
  HostWaits& waits_;
};

class CountingCommunicator final : public ForwardingCommunicator {
 public:
  CountingCommunicator(std::unique_ptr<comm::Communicator> inner, HostWaits& waits)
      : ForwardingCommunicator(std::move(inner)), waits_(waits) {}
  absl::Status WaitHost(comm::Ticket ticket, std::chrono::milliseconds deadline) override {
    waits_.Count(&HostWaits::for_peers);
    return ForwardingCommunicator::WaitHost(ticket, deadline);
  }

 private:
  HostWaits& waits_;
};

// Work, transfers, peers; of each step of one rank.
using Counts = std::vector<std::vector<int>>;

absl::Status CountWaits(const v1::Plan& plan, comm::Fabric& fabric, const data::Dataset& dataset,
                        Counts& counts) {
  HostWaits waits;
  ForwardingFabric counted(fabric,
                           [&waits](std::unique_ptr<comm::Communicator> group, std::string_view) {
                             return std::make_unique<CountingCommunicator>(std::move(group), waits);
                           });
  EngineOptions options = OptionsOf(plan.job());
  options.make_device = [&waits](const tensor::HostDeviceOptions& of) {
    return std::make_unique<CountingDevice>(tensor::MakeHostDevice(of), waits);
  };
  ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, counted, dataset, options));
  engine->InitializeState();
  for (uint64_t step = 0; step < 4; ++step) {
    waits.for_work = waits.for_transfers = waits.for_peers = 0;
    RETURN_IF_ERROR(engine->RunStep(step).status());
    counts.push_back({waits.for_work, waits.for_transfers, waits.for_peers});
  }
  return engine->agreement().AllAgree(true).status();
}

// What a step waits for at its end: its work, and what it moves out last.
void CheckWaits(const Layout& layout, const TinyJobOptions& model, bool asynchronous) {
  const auto dataset = MakeRandomDataset(29, 5);
  v1::JobSpec job = JobFor(layout, model);
  job.mutable_runtime()->set_asynchronous_streams(asynchronous);
  const auto plan = plan::MakePlan(job, layout.ranks());
  INFO(layout.Name() << (asynchronous ? " asynchronous " : " ") << plan.status().ToString());
  REQUIRE(plan.ok());
  std::vector<Counts> counts(static_cast<size_t>(layout.ranks()));
  const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) {
    return CountWaits(*plan, fabric, *dataset, counts[static_cast<size_t>(fabric.rank())]);
  });
  for (const absl::Status& status : statuses) REQUIRE(status.ToString() == "OK");
  const bool offloads = layout.offload_state != "none" || layout.offload_activations != "none";
  const bool on_threads = OptionsOf(job).device.asynchronous;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const int stage =
        static_cast<int>(plan::CoordinatesOf(plan->mesh(), static_cast<int>(rank)).pipeline);
    // Inline each instruction is done when it has been issued, and what waits for it then costs
    // nothing; on threads only the first program of a kind does so: nothing is known of its times.
    const int instructions = plan->stages(stage).step().instructions_size();
    for (size_t step = 0; step < counts[rank].size(); ++step) {
      INFO("rank " << rank << " step " << step);
      const bool each = step == 0 || !on_threads;
      const std::vector<int> expected = {each ? instructions + 1 : 1, offloads ? 1 : 0, 0};
      CHECK(counts[rank][step] == expected);
    }
  }
}

}  // namespace

TEST_CASE("host waits: one a step, at its end, and one for what is moved out last") {
  const std::vector<Layout> layouts = {
      {.data = 2, .pipeline = 2, .zero = 1},
      {.data = 2, .tensor = 2, .sequence_parallel = true, .zero = 3, .recompute = "selective"},
      {.pipeline = 2,
       .schedule = "gpipe",
       .offload_state = "file",
       .offload_activations = "host",
       .micro_batch = 1},
      {.data = 2, .zero = 2, .offload_state = "host", .micro_batch = 1}};
  for (const Layout& layout : layouts) {
    for (const bool asynchronous : {false, true}) {
      CheckWaits(layout, {}, asynchronous);
      CheckWaits(layout, {.dtype = "f32", .compression = "on"}, asynchronous);
    }
  }
}

}  // namespace trireme::engine
