// Gradients of replicas lie where the replicas of their machine reach them: where that is so, what
// comes of it where it is not, and that the weights are the same to the bit.
#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/comm/node_memory.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "runtime/tensor/memory.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {
namespace {

// As a fabric gives where the system has no memory to share.
class PrivateMemory final : public comm::NodeMemory {
 public:
  explicit PrivateMemory(tensor::HugeMemory memory) : memory_(std::move(memory)) {}
  std::span<std::byte> own() const override { return memory_.span(); }
  std::byte* Of(int) const override { return nullptr; }

 private:
  const tensor::HugeMemory memory_;
};

// Notes what is allocated.
class NotingFabric final : public comm::Fabric {
 public:
  NotingFabric(comm::Fabric& inner, bool shares) : inner_(inner), shares_(shares) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::StatusOr<std::unique_ptr<comm::Communicator>> Group(
      std::span<const int> ranks, std::string_view name, const comm::CodingRoom& coding) override {
    return inner_.Group(ranks, name, coding);
  }
  absl::StatusOr<std::shared_ptr<comm::NodeMemory>> Allocate(size_t bytes) override {
    if (shares_) {
      ASSIGN_OR_RETURN(auto memory, inner_.Allocate(bytes));
      memories_.push_back(memory);
    } else {
      ASSIGN_OR_RETURN(auto memory, tensor::HugeMemory::Map(bytes));
      memories_.push_back(std::make_shared<PrivateMemory>(std::move(memory)));
    }
    return memories_.back();
  }
  void WatchWaits(comm::WaitWatcher* watcher) override { inner_.WatchWaits(watcher); }
  absl::Status Close() override { return inner_.Close(); }
  const std::vector<std::shared_ptr<comm::NodeMemory>>& memories() const { return memories_; }

 private:
  comm::Fabric& inner_;
  const bool shares_;
  std::vector<std::shared_ptr<comm::NodeMemory>> memories_;
};

// Each sum of a bucket is large enough to be made in node memory.
v1::JobSpec WideJob(const Layout& layout) {
  v1::JobSpec job = JobFor(layout, TinyJobOptions{.dtype = "f32"});
  job.mutable_model()->mutable_config()->set_vocab_size(997);
  return job;
}

comm::LocalOptions With(size_t window_bytes) {
  comm::LocalOptions options;
  options.fabric.window_bytes = window_bytes;
  return options;
}

constexpr size_t kWindow = size_t{256} << 10;

// How many bytes of gradients lie in node memory, by rank; -1: none was asked for.
std::vector<int64_t> SharedBytes(const Layout& layout, size_t window_bytes) {
  const v1::JobSpec job = WideJob(layout);
  const auto dataset = MakeRandomDataset(997, job.data().sequence_length());
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  std::vector<int64_t> bytes(static_cast<size_t>(layout.ranks()), -1);
  const auto statuses = comm::RunRanks(
      layout.ranks(),
      [&](comm::Fabric& own) -> absl::Status {
        NotingFabric fabric(own, true);
        ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
        if (!fabric.memories().empty()) {
          const std::span<std::byte> memory = fabric.memories().back()->own();
          bytes[static_cast<size_t>(own.rank())] = std::ssize(memory);
          const v1::PoolKind summed = layout.zero >= 2 ? v1::PARTIAL : v1::GRADIENT;
          const bool there = engine->state().Flat(summed, 0).get() == memory.data();
          if (there == memory.empty()) return absl::InternalError("gradients lie elsewhere");
        }
        return engine->agreement().AllAgree(true).status();
      },
      With(window_bytes));
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
  return bytes;
}

}  // namespace

TEST_CASE("gradients are in node memory where replicas sum through a window, and only there") {
  for (const int64_t bytes : SharedBytes({.data = 2, .micro_batch = 1}, kWindow)) CHECK(bytes > 0);
  for (const int64_t bytes : SharedBytes({.data = 2, .pipeline = 2, .zero = 1}, kWindow))
    CHECK(bytes > 0);
  for (const int64_t zero : {2, 3}) {
    for (const int64_t bytes : SharedBytes({.data = 2, .zero = zero}, kWindow)) CHECK(bytes > 0);
  }
  for (const int64_t bytes : SharedBytes({.data = 2, .micro_batch = 1}, 0)) CHECK(bytes == 0);
  for (const int64_t bytes : SharedBytes({.tensor = 2}, kWindow)) CHECK(bytes == -1);
}

TEST_CASE("weights are the same to the bit where gradients are summed in node memory") {
  for (const int zero : {0, 1, 2, 3}) {
    for (const bool asynchronous : {false, true}) {
      const Layout layout{.data = 3, .zero = zero, .micro_batch = 1};
      v1::JobSpec job = WideJob(layout);
      job.mutable_runtime()->set_asynchronous_streams(asynchronous);
      const auto dataset = MakeRandomDataset(997, job.data().sequence_length());
      const auto plan = plan::MakePlan(job, layout.ranks());
      REQUIRE(plan.ok());
      LayoutResult results[2];
      for (const bool shares : {false, true}) {
        std::mutex mutex;
        const auto statuses = comm::RunRanks(
            layout.ranks(),
            [&](comm::Fabric& own) {
              NotingFabric fabric(own, shares);
              return RunRank(*plan, fabric, *dataset, {}, results[shares ? 1 : 0], mutex);
            },
            With(kWindow));
        for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
      }
      CHECK(!results[0].weights.empty());
      CHECK(results[0].weights == results[1].weights);
      CHECK(results[0].losses == results[1].losses);
    }
  }
}

}  // namespace trireme::engine
