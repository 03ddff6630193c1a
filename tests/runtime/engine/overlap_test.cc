// Transfers move while a rank computes: GATHERs while the next bucket is updated, sums while an
// asynchronous stream is in an operator and nobody waits for them. Seen by the order of calls and
// by operators that go on only once a peer has the sum; nothing here depends on time.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/comm/message_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/forwarding_fabric.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

// What one rank asks of its groups.
struct Watch {
  // Of the engine's thread: g(ather), p(rogress), w(ait for a ticket on the stream).
  std::string calls;
  std::atomic<int> waits_issued{0};    // of the data group
  std::atomic<int> waits_finished{0};  // the stream has come past them
};

// Progress of the data group asked for by this thread.
thread_local int progress_here = 0;

class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  WatchedCommunicator(std::unique_ptr<comm::Communicator> inner, Watch& watch, bool data)
      : ForwardingCommunicator(std::move(inner)),
        watch_(watch),
        data_(data),
        thread_(std::this_thread::get_id()) {}

  comm::Ticket AllGather(const comm::Sharded& sharded,
                         const comm::OperationOptions& options) override {
    Note('g');
    return ForwardingCommunicator::AllGather(sharded, options);
  }
  void WaitOn(comm::Ticket ticket, tensor::Stream& stream,
              std::chrono::milliseconds deadline) override {
    Note('w');
    ForwardingCommunicator::WaitOn(ticket, stream, deadline);
    if (!data_) return;
    stream.Issue(tensor::Task([watch = &watch_] { ++watch->waits_finished; }));
    ++watch_.waits_issued;
  }
  void Progress() override {
    Note('p');
    progress_here += data_ ? 1 : 0;
    ForwardingCommunicator::Progress();
  }

 private:
  void Note(char call) {
    if (std::this_thread::get_id() == thread_) watch_.calls += call;
  }

  Watch& watch_;
  const bool data_;
  const std::thread::id thread_;  // the engine's
};

ForwardingFabric::Decorate WatchedBy(Watch& watch) {
  return [&watch](std::unique_ptr<comm::Communicator> group, std::string_view name) {
    return std::make_unique<WatchedCommunicator>(std::move(group), watch, name == "data");
  };
}

// Calls `before` and then runs what it has.
class HookedKernel final : public kernels::Kernel {
 public:
  HookedKernel(std::unique_ptr<kernels::Kernel> inner, std::function<void()> before)
      : inner_(std::move(inner)), before_(std::move(before)) {}
  void Run(const graph::OpCall& call) override {
    before_();
    inner_->Run(call);
  }
  size_t ScratchBytes() const override { return inner_->ScratchBytes(); }

 private:
  std::unique_ptr<kernels::Kernel> inner_;
  const std::function<void()> before_;
};

struct Hook {
  graph::OpKind kind;
  graph::Phase phase;
  std::function<void()> call;
};

// Reference kernels; those that are named call their hooks.
kernels::KernelRegistry HookedKernels(const v1::JobSpec& job, const std::vector<Hook>& hooks) {
  kernels::KernelRegistry registry;
  for (const Hook& each : hooks) {
    registry.Register(
        each.kind, each.phase, tensor::DType::kF64, "hooked",
        [&plain = KernelsOf(job), hook = each.call](
            const graph::OpSpec& spec,
            const kernels::PrepareOptions& options) -> std::unique_ptr<kernels::Kernel> {
          auto kernel = plain.Prepare(spec, options);
          if (!kernel.ok()) return nullptr;
          return std::make_unique<HookedKernel>(*std::move(kernel), hook);
        });
  }
  kernels::RegisterReferenceKernels(registry);
  return registry;
}

// False after a time in which nothing that goes on at all can fail to come.
bool WaitUntilTrue(const std::function<bool()>& condition) {
  for (int look = 0; look < 20'000 && !condition(); ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

struct GatherCalls {
  std::string calls;  // of the engine's thread from the first GATHER on
  int gathers = 0;
};

GatherCalls GatherCallsOf(v1::JobSpec job, const data::Dataset& dataset, uint64_t updates_of_rank) {
  const auto plan = plan::MakePlan(job, 2);
  REQUIRE(plan.ok());
  std::vector<Watch> watches(2);
  const auto statuses = comm::RunRanks(2, [&](comm::Fabric& own) -> absl::Status {
    ForwardingFabric fabric(own, WatchedBy(watches[static_cast<size_t>(own.rank())]));
    // In line, lest the engine's thread be ahead of the updates.
    ASSIGN_OR_RETURN(auto engine,
                     Engine::Create(*plan, fabric, dataset,
                                    {.kernels = &KernelsOf(job), .device = {.strict = true}}));
    engine->InitializeState();
    watches[static_cast<size_t>(own.rank())].calls.clear();
    return engine->RunStep(0).status();
  });
  for (const absl::Status& status : statuses) REQUIRE(status.ToString() == "OK");
  const std::string& calls = watches[updates_of_rank].calls;
  return {calls.substr(calls.find('g')), plan->stages(0).buckets_size()};
}

// Issues of Progress between the GATHERs, in their order.
std::vector<int> ProgressBetween(const GatherCalls& updates) {
  std::vector<int> counts;
  for (const char call : updates.calls) {
    if (call == 'g') counts.push_back(0);
    if (call == 'p') ++counts.back();
  }
  return counts;
}

}  // namespace

TEST_CASE("overlap: each bucket's GATHER moves while the next bucket is updated") {
  const auto dataset = MakeRandomDataset(29, 5);
  for (const uint64_t rank : {0, 1}) {
    const GatherCalls updates = GatherCallsOf(JobFor({.data = 2, .zero = 1}, {}), *dataset, rank);
    const std::vector<int> progress = ProgressBetween(updates);
    REQUIRE(updates.gathers > 10);
    REQUIRE(static_cast<int>(progress.size()) == updates.gathers);
    for (size_t gather = 0; gather + 1 < progress.size(); ++gather) CHECK(progress[gather] > 0);
    // Nothing is waited for before the last one is issued, then each once.
    CHECK(updates.calls.find('w') > updates.calls.rfind('g'));
    CHECK(std::count(updates.calls.begin(), updates.calls.end(), 'w') == updates.gathers);
  }
}

TEST_CASE("overlap: a large parameter is updated in parts, between which GATHERs move") {
  constexpr int64_t kVocabulary = 40'000;  // times 36 columns, half of it on each replica
  v1::JobSpec job = JobFor({.data = 2, .zero = 1, .micro_batch = 1}, {.layers = 1});
  job.mutable_model()->mutable_config()->set_vocab_size(kVocabulary);
  job.mutable_training()->set_global_batch_size(2);
  const auto dataset = MakeRandomDataset(kVocabulary, 5);
  const std::vector<int> progress = ProgressBetween(GatherCallsOf(job, *dataset, 0));
  // 720,000 elements in parts of 2^18.
  CHECK(*std::max_element(progress.begin(), progress.end()) >= 3);
}

// Of streams that are no threads: there nobody else moves them.
TEST_CASE("overlap: transfers move between the operators of one instruction") {
  v1::JobSpec job = JobFor({.data = 2}, {.layers = 2});
  const auto plan = plan::MakePlan(job, 2);
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  std::vector<Watch> watches(2);
  // Issues of Progress before each product of rank 0.
  std::vector<int64_t> before;
  const auto statuses = comm::RunRanks(2, [&](comm::Fabric& own) -> absl::Status {
    Watch& watch = watches[static_cast<size_t>(own.rank())];
    ForwardingFabric fabric(own, WatchedBy(watch));
    const auto note = [&] {
      if (own.rank() != 0) return;
      before.push_back(std::count(watch.calls.begin(), watch.calls.end(), 'p'));
    };
    const kernels::KernelRegistry registry =
        HookedKernels(job, {{graph::OpKind::kLinear, graph::Phase::kForward, note},
                            {graph::OpKind::kLinear, graph::Phase::kInputGrad, note},
                            {graph::OpKind::kLinear, graph::Phase::kWeightGrad, note}});
    ASSIGN_OR_RETURN(auto engine,
                     Engine::Create(*plan, fabric, *dataset,
                                    {.kernels = &registry, .device = {.strict = true}}));
    engine->InitializeState();
    before.clear();
    return engine->RunStep(0).status();
  });
  for (const absl::Status& status : statuses) REQUIRE(status.ToString() == "OK");
  REQUIRE(before.size() > 20);
  for (size_t at = 1; at < before.size(); ++at) CHECK(before[at] > before[at - 1]);
}

// Rank 0's stream stands in an operator that goes on only once rank 1, which begins no earlier, has
// all the sums that were issued before: more than run at a time, so each needs rank 0 to have done
// with one before it. Its engine's thread has nothing left to issue and waits for the stream.
TEST_CASE("overlap: who waits for an asynchronous stream moves the sums in flight") {
  v1::JobSpec job = JobFor({.data = 2, .micro_batch = 4}, {.layers = 2});
  const auto plan = plan::MakePlan(job, 2);
  REQUIRE(plan.ok());
  const v1::StagePlan& stage = plan->stages(0);
  int last_backward = 0, reduces_before = 0;
  for (int at = 0; at < stage.step().instructions_size(); ++at) {
    if (stage.step().instructions(at).kind() == v1::B) last_backward = at;
  }
  for (int at = 0; at < last_backward; ++at) {
    reduces_before += stage.step().instructions(at).kind() == v1::REDUCE ? 1 : 0;
  }
  REQUIRE(reduces_before > static_cast<int>(2 * comm::FabricOptions().lanes));
  const auto dataset = MakeRandomDataset(29, 5);
  std::vector<Watch> watches(2);
  std::atomic<bool> looked_at = false, all_issued = false, at_last = false, moved = false;
  std::atomic<int> begun_on_stream = 0;
  const auto statuses = comm::RunRanks(2, [&](comm::Fabric& own) -> absl::Status {
    Watch& watch = watches[static_cast<size_t>(own.rank())];
    ForwardingFabric fabric(own, WatchedBy(watch));
    const bool held = own.rank() == 0;
    const auto first = [&] {
      if (!looked_at) return;
      progress_here = 0;
      if (!held) WaitUntilTrue([&] { return at_last.load(); });
      if (held)
        // LOAD's too.
        all_issued = WaitUntilTrue([&] { return watch.waits_issued == stage.buckets_size() + 1; });
    };
    const auto last = [&] {
      if (!held || !looked_at) return;
      begun_on_stream = progress_here;
      at_last = true;
      moved = WaitUntilTrue([&] { return watches[1].waits_finished > reduces_before; });
    };
    // The first operator of a step and, of the weight-grads, one of the last.
    const kernels::KernelRegistry registry =
        HookedKernels(job, {{graph::OpKind::kEmbedding, graph::Phase::kForward, first},
                            {graph::OpKind::kEmbedding, graph::Phase::kWeightGrad, last}});
    ASSIGN_OR_RETURN(auto engine,
                     Engine::Create(*plan, fabric, *dataset,
                                    {.kernels = &registry, .device = StrictDevice(true)}));
    engine->InitializeState();
    // The first program runs in step with its issuing.
    RETURN_IF_ERROR(engine->RunStep(0).status());
    watch.waits_issued = watch.waits_finished = 0;
    RETURN_IF_ERROR(engine->agreement().AllAgree(true).status());
    looked_at = true;
    return engine->RunStep(1).status();
  });
  for (const absl::Status& status : statuses) CHECK(status.ToString() == "OK");
  CHECK(all_issued);
  CHECK(moved);
  // Each began as the stream came to it, not only when somebody looked.
  CHECK(begun_on_stream >= reduces_before);
}

}  // namespace trireme::engine
