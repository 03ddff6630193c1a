// Who stands still, however long nobody has asked.
#include "coordinator/dashboard/stall_board.h"

#include <catch2/catch.hpp>
#include <memory>

namespace trireme::dashboard {
namespace {

// A store and its table, as a reconciler keeps them.
class Told {
 public:
  Told() {
    auto store = coordinator::JobStore::Open(":memory:");
    REQUIRE(store.ok());
    store_ = *std::move(store);
    board_ = std::make_unique<StallBoard>(table_, *store_);
  }

  void Stall(uint64_t job, uint32_t rank, bool over) {
    coordinator::Change change;
    v1::Event& event = change.events.emplace_back();
    event.set_job_id(job);
    event.set_attempt(1);
    event.mutable_stalled()->set_rank(rank);
    event.mutable_stalled()->set_over(over);
    event.mutable_stalled()->set_text("rank " + std::to_string(rank));
    Commit(change);
  }
  // More than a table keeps.
  void MuchElse() {
    for (int i = 0; i < 12; ++i) {
      coordinator::Change change;
      for (int k = 0; k < 1000; ++k) {
        change.events.emplace_back().mutable_checkpointed()->set_step(1);
        change.events.back().set_job_id(7);
      }
      Commit(change);
    }
  }
  std::vector<std::string> Of(uint64_t id) {
    v1::Job job;
    job.set_id(id);
    job.mutable_status()->set_attempt(1);
    job.mutable_status()->set_attempt_live(true);
    return board_->Of(job);
  }

 private:
  void Commit(coordinator::Change& change) {
    REQUIRE(store_->Commit(change).ok());
    table_.Publish({}, change.events);
  }

  std::unique_ptr<coordinator::JobStore> store_;
  coordinator::JobTable table_;
  std::unique_ptr<StallBoard> board_;
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a rank that has stood still for long is told of at the first look") {
  Told told;
  told.Stall(1, 3, false);
  told.Stall(2, 0, false);
  told.MuchElse();
  CHECK(told.Of(1) == Texts{"rank 3"});
  CHECK(told.Of(2) == Texts{"rank 0"});
}

TEST_CASE("a rank that went on while nobody looked stands still no more") {
  Told told;
  told.Stall(1, 3, false);
  CHECK(told.Of(1) == Texts{"rank 3"});
  CHECK(told.Of(2).empty());
  told.Stall(1, 3, true);
  told.Stall(2, 5, false);
  told.MuchElse();
  CHECK(told.Of(1).empty());
  CHECK(told.Of(2) == Texts{"rank 5"});
}

}  // namespace trireme::dashboard
