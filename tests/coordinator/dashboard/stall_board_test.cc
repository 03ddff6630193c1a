// Who stands still, however long nobody has asked.
#include "coordinator/dashboard/stall_board.h"

#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "tests/coordinator/job_store/held_store.h"

namespace trireme::dashboard {
namespace {

// A store and its table, as a reconciler keeps them.
class Told {
 public:
  Told() {
    auto store = coordinator::JobStore::Open(":memory:");
    REQUIRE(store.ok());
    store_ = std::make_shared<coordinator::HeldStore>(*std::move(store));
    reads_ = std::make_unique<coordinator::StoreReads>(table_, store_, "/state/jobs.db");
    board_ = std::make_unique<StallBoard>(*reads_);
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
  std::vector<std::string> Of(uint64_t id) { return AllOf({id}).front(); }
  // In one question.
  std::vector<StallBoard::Texts> AllOf(const std::vector<uint64_t>& ids) {
    std::vector<v1::Job> jobs;
    for (const uint64_t id : ids) {
      v1::Job& job = jobs.emplace_back();
      job.set_id(id);
      job.mutable_status()->set_attempt(1);
      job.mutable_status()->set_attempt_live(true);
    }
    return board_->Of(jobs);
  }
  coordinator::HeldStore& store() { return *store_; }

 private:
  void Commit(coordinator::Change& change) {
    REQUIRE(store_->Commit(change).ok());
    table_->Publish({}, change.events);
  }

  std::shared_ptr<coordinator::HeldStore> store_;
  const std::shared_ptr<coordinator::JobTable> table_ = std::make_shared<coordinator::JobTable>();
  std::unique_ptr<coordinator::StoreReads> reads_;
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

TEST_CASE("what comes while the first events of a job are read is taken as well, once") {
  Told told;
  told.Stall(1, 3, false);
  told.Stall(1, 4, false);
  told.store().Hold();
  Texts read;
  std::thread reader([&] { read = told.Of(1); });
  told.store().AwaitWaiting(1);
  told.Stall(1, 3, true);
  told.Stall(1, 5, false);
  told.store().LetGo();
  reader.join();
  CHECK(read == Texts{"rank 4", "rank 5"});
  CHECK(told.Of(1) == read);
}

TEST_CASE(
    "a disk that hangs is waited for once for all jobs, and their ranks are told when it answers") {
  Told told;
  for (const uint64_t job : {1, 2, 3}) told.Stall(job, 7, false);
  told.store().Hold();
  std::vector<Texts> read = {{}};
  std::thread reader([&] { read = told.AllOf({1, 2, 3}); });
  told.store().AwaitWaiting(1);
  reader.join();
  CHECK(read == std::vector<Texts>(3));
  CHECK(told.store().waiting() == 1);
  told.store().LetGo();
  CHECK(told.AllOf({1, 2, 3}) == std::vector<Texts>(3, Texts{"rank 7"}));
}

}  // namespace trireme::dashboard
