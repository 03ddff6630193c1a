// The job's deadline holds in every group of the mesh: a rank that falls silent in one of them is
// named by its peer there, within what the job says. No wait but those for the silent rank has a
// deadline that could end it first, so nothing here depends on the machine's speed.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/comm/message_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

using comm::Communicator;
using comm::Ticket;
using std::chrono::milliseconds;

constexpr milliseconds kJobDeadline{250};
constexpr milliseconds kNever{3600000};
// A wait that does not carry the job's deadline ends here, and says so by this figure.
constexpr milliseconds kMost{15000};

struct Silence {
  std::string group;
  int rank = 0;
};

// A silent rank stands still here until another one has given up.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    opened_.wait_for(lock, 4 * kMost, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// A rank's part of the scene; `begun` once its step has.
struct Part {
  Silence silence;
  Gate* gate = nullptr;
  int rank = 0;
  bool begun = false;
};

class SilencedCommunicator final : public Communicator {
 public:
  SilencedCommunicator(std::unique_ptr<Communicator> inner, const Part* part, bool concerned)
      : inner_(std::move(inner)), part_(part), concerned_(concerned) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Ticket Send(std::span<const std::byte> data, int peer, uint32_t channel,
              const comm::OperationOptions& options) override {
    Fall();
    return inner_->Send(data, peer, channel, options);
  }
  Ticket Recv(std::span<std::byte> data, int peer, uint32_t channel,
              const comm::OperationOptions& options) override {
    Fall();
    return inner_->Recv(data, peer, channel, options);
  }
  Ticket AllReduce(void* data, int64_t count, tensor::DType dtype, comm::ReduceOp op,
                   const comm::OperationOptions& options) override {
    Fall();
    return inner_->AllReduce(data, count, dtype, op, options);
  }
  Ticket ReduceScatter(const comm::Sharded& sharded,
                       const comm::OperationOptions& options) override {
    Fall();
    return inner_->ReduceScatter(sharded, options);
  }
  Ticket AllGather(const comm::Sharded& sharded, const comm::OperationOptions& options) override {
    Fall();
    return inner_->AllGather(sharded, options);
  }
  Ticket Broadcast(std::span<std::byte> data, int root,
                   const comm::OperationOptions& options) override {
    Fall();
    return inner_->Broadcast(data, root, options);
  }
  bool SumsInWindow() const override { return inner_->SumsInWindow(); }
  void LeaveWindow() override { inner_->LeaveWindow(); }
  bool Test(Ticket ticket) override { return inner_->Test(ticket); }
  absl::Status WaitHost(Ticket ticket, milliseconds deadline) override {
    return inner_->WaitHost(ticket, Kept(deadline));
  }
  void WaitOn(Ticket ticket, tensor::Stream& stream, milliseconds deadline) override {
    inner_->WaitOn(ticket, stream, Kept(deadline));
  }
  void Progress() override { inner_->Progress(); }
  absl::Status status() const override { return inner_->status(); }
  void Abort(absl::Status cause) override { inner_->Abort(std::move(cause)); }

 private:
  milliseconds Kept(milliseconds deadline) const {
    return concerned_ && part_->begun ? std::min(deadline, kMost) : kNever;
  }
  void Fall() const {
    if (concerned_ && part_->begun && part_->rank == part_->silence.rank) part_->gate->Pass();
  }

  std::unique_ptr<Communicator> inner_;
  const Part* part_;
  const bool concerned_;  // the silence falls in this group
};

class SilencedFabric final : public comm::Fabric {
 public:
  SilencedFabric(comm::Fabric* inner, const Part* part) : inner_(inner), part_(part) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::StatusOr<std::unique_ptr<Communicator>> Group(std::span<const int> ranks,
                                                      std::string_view name,
                                                      const comm::CodingRoom& coding) override {
    ASSIGN_OR_RETURN(auto inner, inner_->Group(ranks, name, coding));
    const bool concerned =
        name == part_->silence.group &&
        std::find(ranks.begin(), ranks.end(), part_->silence.rank) != ranks.end();
    return std::make_unique<SilencedCommunicator>(std::move(inner), part_, concerned);
  }
  absl::StatusOr<std::shared_ptr<comm::NodeMemory>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  void WatchWaits(comm::WaitWatcher* watcher) override { inner_->WatchWaits(watcher); }
  absl::Status Close() override { return inner_->Close(); }

 private:
  comm::Fabric* inner_;
  const Part* part_;
};

absl::Status TrainOrEvaluate(const v1::Plan& plan, const data::Dataset& dataset,
                             comm::Fabric& fabric, bool evaluate, Part* part) {
  SilencedFabric silenced(&fabric, part);
  EngineOptions options = OptionsOf(plan.job());
  options.deadline = kJobDeadline;
  ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, silenced, dataset, options));
  engine->InitializeState();
  part->begun = true;
  return evaluate ? engine->Evaluate(0).status() : engine->RunStep(0).status();
}

// By rank.
std::vector<absl::Status> StatusesOf(const Silence& silence, bool evaluate) {
  const Layout layout{.data = 2, .tensor = 2, .pipeline = 2};
  const auto plan = plan::MakePlan(JobFor(layout, {}), layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  Gate gate;
  return comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) {
    Part part{.silence = silence, .gate = &gate, .rank = fabric.rank()};
    absl::Status status = TrainOrEvaluate(*plan, *dataset, fabric, evaluate, &part);
    if (status.ok()) return status;
    static_cast<comm::MessageFabric&>(fabric).Abort(status);
    gate.Open();
    return status;
  });
}

// Milliseconds that a wait has lasted, as its failure says; 0: it does not.
int64_t LimitIn(absl::string_view message) {
  constexpr absl::string_view kBefore = "no progress for ";
  const size_t at = message.find(kBefore);
  int64_t limit = 0;
  const bool found =
      at != absl::string_view::npos &&
      absl::SimpleAtoi(
          message.substr(at + kBefore.size(), message.find(" ms,") - at - kBefore.size()), &limit);
  return found ? limit : 0;
}

}  // namespace

TEST_CASE("deadline: a rank that is silent in any group is named within the job's deadline") {
  // Ranks count tensor first, then data, then pipeline; a peer in the group waits for each of
  // these. In an evaluation nobody waits for the later stage but in the world.
  const Silence silences[] = {
      {"world", 0}, {"tensor", 1}, {"data", 2}, {"pipeline", 0}, {"tied", 4}};
  for (const Silence& silence : silences) {
    for (const bool evaluate : {false, true}) {
      // An evaluation has nothing to reduce.
      if (evaluate && (silence.group == "data" || silence.group == "tied")) continue;
      const auto statuses = StatusesOf(silence, evaluate);
      const std::string named = absl::StrCat(" ms, waiting for rank ", silence.rank);
      for (size_t rank = 0; rank < statuses.size(); ++rank) {
        INFO(silence.group << (evaluate ? ", evaluation" : ", step") << ", rank " << rank << ": "
                           << statuses[rank].ToString());
        // The silent rank may end well: what the others sent it is there.
        if (static_cast<int>(rank) == silence.rank) continue;
        const auto message = statuses[rank].message();
        CHECK(absl::StrContains(message, absl::StrCat("group '", silence.group, "'")));
        CHECK(absl::EndsWith(message, named));
        // With what the pipeline may need (patience.h), which no wait in a tensor group has.
        CHECK(LimitIn(message) >= kJobDeadline.count());
        CHECK(LimitIn(message) < kMost.count());
        if (silence.group == "tensor") CHECK(LimitIn(message) == kJobDeadline.count());
      }
    }
  }
}

}  // namespace trireme::engine
