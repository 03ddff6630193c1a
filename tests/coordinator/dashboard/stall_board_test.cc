// Who stands still, however long nobody has asked.
#include "coordinator/dashboard/stall_board.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/job_store/forwarding_store.h"
#include "tests/coordinator/job_store/held_store.h"

namespace trireme::dashboard {
namespace {

using std::chrono::milliseconds;

// Each page of events takes so long, as of a disk that is busy.
class SlowStore : public coordinator::ForwardingStore {
 public:
  static constexpr milliseconds kPage{20};

  using ForwardingStore::ForwardingStore;
  absl::StatusOr<std::vector<v1::Event>> Events(const coordinator::EventQuery& query) override {
    ++pages;
    std::this_thread::sleep_for(kPage);
    if (query.job_id == fails_of) return absl::DataLossError("jobs.db: damaged");
    return ForwardingStore::Events(query);
  }

  std::atomic<int> pages{0};
  std::atomic<uint64_t> fails_of{0};  // a job
};

// A store and its table, as a reconciler keeps them.
class Told {
 public:
  explicit Told(milliseconds time = kDiskTime) {
    auto store = coordinator::JobStore::Open(":memory:");
    REQUIRE(store.ok());
    auto slow = std::make_unique<SlowStore>(*std::move(store));
    slow_ = slow.get();
    store_ = std::make_shared<coordinator::HeldStore>(std::move(slow));
    reads_ = std::make_unique<coordinator::StoreReads>(table_, store_, "/state/jobs.db");
    board_ = std::make_unique<StallBoard>(*reads_, time);
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
  void MuchElse(uint64_t job = 7) {
    for (int i = 0; i < 12; ++i) {
      coordinator::Change change;
      for (int k = 0; k < 1000; ++k) {
        change.events.emplace_back().mutable_checkpointed()->set_step(1);
        change.events.back().set_job_id(job);
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
  // Asked as a page does, until something is told; nothing: it is not after `most` questions.
  std::optional<int> QuestionsUntil(const std::vector<std::string>& texts, int most) {
    for (int asked = 1; asked <= most; ++asked) {
      if (Of(1) == texts) return asked;
      std::this_thread::sleep_for(SlowStore::kPage);
    }
    return std::nullopt;
  }
  coordinator::HeldStore& store() { return *store_; }
  SlowStore& slow() { return *slow_; }
  int pages() const { return slow_->pages; }

 private:
  void Commit(coordinator::Change& change) {
    REQUIRE(store_->Commit(change).ok());
    table_->Publish({}, change.events);
  }

  SlowStore* slow_ = nullptr;
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
    "a disk that hangs is asked once for all jobs, by one caller, and told of when it answers") {
  Told told(milliseconds(100));
  for (const uint64_t job : {1, 2, 3}) told.Stall(job, 7, false);
  told.store().Hold();
  std::vector<Texts> read = {{}};
  std::thread reader([&] { read = told.AllOf({1, 2, 3}); });
  told.store().AwaitWaiting(1);
  reader.join();
  CHECK(read == std::vector<Texts>(3));
  // Nobody else comes to hang there.
  for (int again = 0; again < 8; ++again) CHECK(told.AllOf({1, 2, 3}) == std::vector<Texts>(3));
  CHECK(told.store().waiting() == 1);
  told.store().LetGo();
  std::vector<Texts> after;
  for (int asked = 0; asked < 1000 && after != std::vector<Texts>(3, Texts{"rank 7"}); ++asked) {
    std::this_thread::sleep_for(SlowStore::kPage);
    after = told.AllOf({1, 2, 3});
  }
  CHECK(after == std::vector<Texts>(3, Texts{"rank 7"}));
}

TEST_CASE("a job whose events cannot be read keeps no other untold") {
  Told told;
  for (const uint64_t job : {1, 2, 3}) told.Stall(job, 7, false);
  told.slow().fails_of = 1;
  for (int again = 0; again < 2; ++again) {
    CHECK(told.AllOf({1, 2, 3}) == std::vector<Texts>{{}, {"rank 7"}, {"rank 7"}});
  }
  told.slow().fails_of = 0;
  CHECK(told.AllOf({1, 2, 3}) == std::vector<Texts>(3, Texts{"rank 7"}));
}

TEST_CASE("a disk that is slow but gets on holds a caller no longer than one that hangs") {
  // A read comes to five pages or so of the twenty-five.
  Told told(5 * SlowStore::kPage);
  told.Stall(1, 3, false);
  for (int each = 0; each < 2; ++each) told.MuchElse(1);
  CHECK(told.Of(1).empty());
  // Nor does it hold the store's thread, for which others wait.
  std::this_thread::sleep_for(30 * SlowStore::kPage);
  CHECK(told.pages() <= 6);
  // Each goes on where the last one has ended.
  const auto questions = told.QuestionsUntil({"rank 3"}, 300);
  CAPTURE(told.pages());
  REQUIRE(questions);
  CHECK(*questions > 1);
  CHECK(told.pages() == 25);
}

}  // namespace trireme::dashboard
