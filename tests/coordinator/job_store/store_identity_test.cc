// Whether a store goes on from what somebody has seen: by copies of real files, as backups are.
#include "coordinator/job_store/store_identity.h"

#include <filesystem>

#include "tests/coordinator/job_store/samples.h"

namespace trireme::coordinator {
namespace {

void Tell(JobStore& store, uint64_t events) {
  Change change;
  for (uint64_t i = 0; i < events; ++i) change.events.push_back(SampleEvent(1, "news"));
  REQUIRE(store.Commit(change).ok());
}

v1::StorePosition PositionOf(JobStore& store) { return store.identity().At(*store.LastSequence()); }

bool Continues(JobStore& store, const v1::StorePosition& served) {
  return store.identity().Continues(served, *store.LastSequence());
}

std::unique_ptr<JobStore> Begin(const std::string& path) {
  auto store = MustOpen(path);
  REQUIRE(store->BeginEpoch().ok());
  return store;
}

TEST_CASE("identity: a store is the same after each start, in an epoch of its own") {
  const Folder folder;
  std::vector<v1::StorePosition> seen;
  for (uint64_t start = 1; start <= 3; ++start) {
    const auto store = Begin(folder / "jobs.db");
    seen.push_back(PositionOf(*store));
    CHECK(seen.back().epoch() == start);
    CHECK(seen.back().store() == seen[0].store());
    CHECK((start == 1 || seen.back().opening() != seen[start - 2].opening()));
    for (const v1::StorePosition& before : seen) CHECK(Continues(*store, before));
    Tell(*store, 2);
    // The events since then are in it; one that it never had is not.
    seen.push_back(PositionOf(*store));
    CHECK(Continues(*store, seen.back()));
    v1::StorePosition beyond = seen.back();
    beyond.set_sequence(beyond.sequence() + 1);
    CHECK(!Continues(*store, beyond));
    seen.pop_back();
  }
}

TEST_CASE("identity: an empty store continues nobody's, nor does nobody's position its own") {
  const Folder folder;
  const auto old = Begin(folder / "old.db");
  const auto fresh = Begin(folder / "fresh.db");
  CHECK(!Continues(*fresh, PositionOf(*old)));
  CHECK(!Continues(*fresh, v1::StorePosition()));
}

TEST_CASE("identity: a backup does not continue what came after it, however long it works on") {
  const Folder folder;
  Tell(*Begin(folder / "jobs.db"), 5);
  std::filesystem::copy_file(folder / "jobs.db", folder / "backup.db");
  v1::StorePosition before;
  v1::StorePosition after;
  {
    const auto store = MustOpen(folder / "jobs.db");
    before = store->identity().At(5);
    REQUIRE(store->BeginEpoch().ok());
    Tell(*store, 1);
    after = PositionOf(*store);
  }
  for (int start = 0; start < 3; ++start) {
    const auto restored = Begin(folder / "backup.db");
    CHECK(Continues(*restored, before));
    CHECK(!Continues(*restored, after));  // in the same epoch of another history
    Tell(*restored, 10);
    CHECK(!Continues(*restored, after));
  }
}

TEST_CASE("identity: events lost in the epoch of the backup are missed") {
  const Folder folder;
  v1::StorePosition served;
  {
    const auto store = Begin(folder / "jobs.db");
    Tell(*store, 3);
    served = PositionOf(*store);
  }
  std::filesystem::copy_file(folder / "jobs.db", folder / "backup.db");
  {
    const auto store = MustOpen(folder / "jobs.db");  // the epoch goes on
    Tell(*store, 1);
    served = PositionOf(*store);
  }
  const auto restored = Begin(folder / "backup.db");
  CHECK(served.epoch() == 1);
  CHECK(!Continues(*restored, served));
  Tell(*restored, 5);
  CHECK(!Continues(*restored, served));
}

TEST_CASE("identity: of the oldest epochs nothing is known any more") {
  const Folder folder;
  const auto store = Begin(folder / "jobs.db");
  const v1::StorePosition first = PositionOf(*store);
  const StoreIdentity pruned(first.store(), {{7, 70, 10}, {8, 80, 20}});
  v1::StorePosition seventh = pruned.At(15);
  CHECK(seventh.epoch() == 8);
  seventh.set_epoch(7);
  CHECK(!pruned.Continues(seventh, 30));
  seventh.set_opening(70);
  CHECK(pruned.Continues(seventh, 30));
  seventh.set_sequence(21);
  CHECK(!pruned.Continues(seventh, 30));
  seventh.set_epoch(6);
  CHECK(!pruned.Continues(seventh, 30));
}

}  // namespace
}  // namespace trireme::coordinator
