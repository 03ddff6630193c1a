// Jobs that ended before a daemon was started: the start does not read them, and whoever asks for
// them finds them all the same, before and after they are here.
#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/job_store/forwarding_store.h"
#include "coordinator/reconciler/reconciler.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kStartNs = 1'000'000'000'000;

class CountingStore : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  int read = 0;  // pages of jobs, or all
  bool fails = false;

  absl::StatusOr<std::vector<v1::Job>> Jobs() override {
    ++read;
    return ForwardingStore::Jobs();
  }
  absl::StatusOr<std::vector<v1::Job>> JobsBefore(uint64_t id, size_t limit) override {
    ++read;
    if (fails) return absl::UnavailableError("the disk");
    return ForwardingStore::JobsBefore(id, limit);
  }
  absl::StatusOr<std::optional<v1::Job>> FindJob(uint64_t id) override {
    if (fails) return absl::UnavailableError("the disk");
    return ForwardingStore::FindJob(id);
  }
};

v1::Job JobOf(uint64_t id, v1::JobState state, const std::string& owner) {
  v1::Job job;
  job.set_id(id);
  job.set_owner(owner);
  job.set_submitted_unix_ns(static_cast<int64_t>(id));
  job.mutable_resources()->set_ranks(1);
  job.mutable_spec()->set_seed(id);
  job.mutable_status()->set_state(state);
  job.mutable_status()->set_changed_unix_ns(static_cast<int64_t>(id));
  return job;
}

// 3,000 jobs of which every hundredth waits; the owner of the first is eve, of the others ann.
struct Older {
  explicit Older(ReconcilerOptions options = {}) : store(*JobStore::Open(":memory:")) {
    Change change;
    for (uint64_t id = 1; id <= 3000; ++id) {
      const auto state = id % 100 == 0 ? v1::JOB_PENDING : v1::JOB_COMPLETED;
      change.jobs.push_back(JobOf(id, state, id == 1 ? "eve" : "ann"));
      change.request_ids.push_back(std::to_string(id));
    }
    REQUIRE(store.Commit(change).ok());
    const ReconcilerPorts ports{.make_plan = [](const v1::Job&) {},
                                .desired_changed = [](const std::string&) {}};
    auto opened = Reconciler::Open(options, ports, store, table, kStartNs);
    REQUIRE(opened.ok());
    reconciler = *std::move(opened);
  }
  size_t Here() const {
    size_t here = 0;
    table.ForEach([&](const v1::Job&, const v1::Progress*) { ++here; });
    return here;
  }
  void ReadAll() {
    for (int i = 0; i < 100 && Here() < 3000; ++i) reconciler->Tick(kStartNs + i);
    reconciler->Tick(kStartNs + 100);
    REQUIRE(Here() == 3000);
  }
  // All pages of a list, which must come to an end.
  std::vector<uint64_t> List(v1::ListRequest request) {
    std::vector<uint64_t> ids;
    for (int pages = 0; pages < 1000; ++pages) {
      const auto page = table.List(request, &store);
      REQUIRE(page.ok());
      for (const v1::Job& job : page->jobs()) {
        CHECK_FALSE(job.has_spec());
        ids.push_back(job.id());
      }
      if (page->next_page_token().empty()) return ids;
      request.set_page_token(page->next_page_token());
    }
    FAIL("more than 1000 pages");
    return ids;
  }
  CountingStore store;
  JobTable table;
  std::unique_ptr<Reconciler> reconciler;
};

TEST_CASE("a start reads what has not ended, and the ticks after it the rest") {
  Older older;
  CHECK(older.store.read == 0);
  CHECK(older.Here() == 30);
  // In slices: between them the loop takes its messages.
  older.reconciler->Tick(kStartNs);
  CHECK(older.Here() < 1000);
  older.ReadAll();
  const int read = older.store.read;
  older.reconciler->Tick(kStartNs + 200);
  CHECK(older.store.read == read);
}

TEST_CASE("jobs that are not here yet are found in the store") {
  Older older;
  const bool read = GENERATE(false, true);
  if (read) older.ReadAll();
  CHECK(older.table.Get(7, &older.store)->spec().seed() == 7);
  CHECK(*older.table.OwnerOf(1, &older.store) == "eve");
  CHECK(absl::IsNotFound(older.table.Get(3001, &older.store).status()));
  CHECK(older.table.OwnerOf(3001, &older.store)->empty());
  // Without it, it is said that it is needed; that one has ended is known in any case.
  CHECK(NeedsStore(older.table.Get(7).status()) == !read);
  CHECK(NeedsStore(older.table.OwnerOf(7).status()) == !read);
  CHECK(NeedsStore(older.table.List({}).status()) == !read);
  CHECK(older.table.StatusOf(100)->state() == v1::JOB_PENDING);
  const auto status = older.table.StatusOf(7);
  CHECK((!status || status->state() == v1::JOB_COMPLETED));
  CHECK_FALSE(older.table.StatusOf(3001));
  const auto refused = older.reconciler->Ask(7, CancelAsked{"ann"}, 0, kStartNs);
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(older.reconciler->Ask(3001, CancelAsked{"ann"}, 0, kStartNs).status().code() ==
        absl::StatusCode::kNotFound);
  Submission again;
  again.owner = "eve";
  again.request_id = "1";
  const auto response = older.reconciler->Submit(again, kStartNs);
  REQUIRE(response.ok());
  CHECK(response->repeated());
  CHECK(response->job().id() == 1);
}

TEST_CASE("a list is the same before, while and after older jobs are read") {
  Older older;
  const int ticks = GENERATE(0, 1, 3, 50);
  for (int i = 0; i < ticks; ++i) older.reconciler->Tick(kStartNs + i);
  // What waits has changed since the start, and a job has come.
  REQUIRE(older.reconciler->Ask(200, CancelAsked{"ann"}, 0, kStartNs + 60).ok());
  Submission submission;
  submission.owner = "ann";
  submission.request_id = "new";
  submission.resources.set_ranks(1);
  REQUIRE(older.reconciler->Submit(submission, kStartNs + 61)->job().id() == 3001);
  v1::ListRequest all;
  all.set_page_size(GENERATE(7, 100, 1000));
  const std::vector<uint64_t> ids = older.List(all);
  REQUIRE(ids.size() == 3001);
  for (size_t i = 0; i < ids.size(); ++i) CHECK(ids[i] == 3001 - i);
  v1::ListRequest some = all;
  some.add_states(v1::JOB_CANCELLED);
  CHECK(older.List(some) == std::vector<uint64_t>{200});
  some.clear_states();
  some.set_owner("eve");
  CHECK(older.List(some) == std::vector<uint64_t>{1});
}

TEST_CASE("a list of jobs that have not ended is whole at once, and asks no disk") {
  Older older;
  older.store.fails = true;
  v1::ListRequest live;
  live.set_page_size(1000);
  live.add_states(v1::JOB_PENDING);
  live.add_states(v1::JOB_RUNNING);
  const auto page = older.table.List(live);
  REQUIRE(page.ok());
  CHECK(page->jobs_size() == 30);
  CHECK(page->next_page_token().empty());
  live.set_page_size(7);
  CHECK(older.List(live).size() == 30);
  live.add_states(v1::JOB_COMPLETED);
  CHECK(absl::IsUnavailable(older.table.List(live, &older.store).status()));
  live.clear_states();
  CHECK(absl::IsUnavailable(older.table.List(live, &older.store).status()));
}

TEST_CASE("a disk that fails is asked again for older jobs") {
  Older older;
  older.store.fails = true;
  older.reconciler->Tick(kStartNs);
  CHECK(older.Here() == 30);
  CHECK(absl::IsUnavailable(older.table.List({}, &older.store).status()));
  older.store.fails = false;
  older.ReadAll();
}

TEST_CASE("what the disk does not say of an older job is not that there is none") {
  Older older;
  older.store.fails = true;
  const auto unavailable = [](const absl::Status& status) {
    return absl::IsUnavailable(status) && !NeedsStore(status);
  };
  CHECK(unavailable(older.table.Find(7, &older.store).status()));
  CHECK(unavailable(older.table.Get(7, &older.store).status()));
  CHECK(unavailable(older.table.OwnerOf(7, &older.store).status()));
  CHECK(older.table.Get(100).ok());  // which has not ended
  Submission again;
  again.owner = "eve";
  again.request_id = "1";
  again.resources.set_ranks(1);
  CHECK(unavailable(older.reconciler->Submit(again, kStartNs).status()));
  CHECK_FALSE(older.table.Get(3001).ok());
}

TEST_CASE("a job is found at each moment of the older ones' coming") {
  const auto store = *JobStore::Open(":memory:");
  Change change;
  change.jobs.push_back(JobOf(1, v1::JOB_COMPLETED, "ann"));
  change.request_ids.push_back("1");
  REQUIRE(store->Commit(change).ok());
  JobTable table;
  table.OlderAreAway();
  std::atomic<bool> over{false};
  std::atomic<int> missed{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 8; ++reader) {
    readers.emplace_back([&] {
      while (!over) missed += !table.Get(1, store.get()).ok();
    });
  }
  for (int round = 0; round < 100000; ++round) {
    table.PublishOlder(change.jobs, 1);
    table.OlderAreHere();
    table.OlderAreAway();
    table.Drop({1});
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(missed == 0);
}

TEST_CASE("ended jobs that are too many are dropped once all are known") {
  ReconcilerOptions options;
  options.most_ended_jobs = 1000;
  Older older(options);
  for (int i = 0; i < 30; ++i) older.reconciler->Tick(kStartNs + i);
  const auto left = older.store.Jobs();
  REQUIRE(left.ok());
  CHECK(left->size() == 1030);
  // Those that ended last stay.
  size_t ended = 0;
  for (const v1::Job& job : *left) ended += job.status().state() == v1::JOB_COMPLETED;
  CHECK(ended == 1000);
  CHECK(left->front().id() == 100);
  CHECK_FALSE(older.table.Get(99).ok());
}

}  // namespace
}  // namespace trireme::coordinator
