// Reservations by time limits: who starts before whom, and what those who wait are told of it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "coordinator/scheduler/scheduler.h"
#include "tests/coordinator/scheduler/cluster_builder.h"
#include "tests/sanitizer.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kHourNs = 3600 * kSecondNs;
constexpr int64_t kStart = 1000 * kSecondNs;

std::vector<NodeCapacity> Racks(const std::vector<uint32_t>& cpus) {
  std::vector<NodeCapacity> nodes;
  for (const uint32_t count : cpus) {
    nodes.push_back({"n" + std::to_string(nodes.size() + 1), count, 64 * kGiB, 0});
  }
  return nodes;
}

Holding Until(int64_t ends_unix_ns, Holding held) {
  held.ends_unix_ns = ends_unix_ns;
  return held;
}

Waiting For(int64_t runs_ns, Waiting job) {
  job.asked.runs_ns = runs_ns;
  return job;
}

std::string Outcome(const Decided& decision, uint64_t job) {
  const auto found = decision.allocations.find(job);
  if (found != decision.allocations.end()) return "starts on " + Text(found->second);
  return decision.waits.at(job).reason;
}

}  // namespace

TEST_CASE("backfill: what ends before a reservation starts and what would not waits") {
  const std::vector<NodeCapacity> nodes = Racks({4, 4});
  const std::vector<Holding> holding = {Until(kStart + 3 * kHourNs, Held(7, {4}, "n1"))};
  const std::vector<Waiting> queue = {For(kHourNs, Job(1, {8})), For(3 * kHourNs, Job(2, {2})),
                                      For(4 * kHourNs, Job(3, {1})), Job(4, {1}),
                                      For(3 * kHourNs, Job(5, {2}))};
  // Whoever is patient or not: it is the reservation that counts.
  for (const int64_t patience : {1, 100000}) {
    const Decided decision =
        Decide(nodes, holding, queue, {std::chrono::seconds(patience)}, kStart);
    CHECK(Outcome(decision, 1) ==
          "waits for 8 CPUs; 0 of 8 are free; starts when job 7 ends, in 3 h at the latest");
    CHECK(Outcome(decision, 2) == "starts on n2:2");
    CHECK(Outcome(decision, 5) == "starts on n2:2");
    CHECK(decision.reservations.at(1).start_unix_ns == kStart + 3 * kHourNs);
    CHECK(Text(decision.reservations.at(1).allocation) == "n1:4 n2:4");
  }
  const std::vector<Waiting> fewer = {queue[0], queue[2], queue[3]};
  const Decided decision = Decide(nodes, holding, fewer, {}, kStart);
  CHECK(Outcome(decision, 3) ==
        "waits, for it would not end before job 1 starts there, in 3 h at the latest; starts when "
        "job 1 ends, in 4 h at the latest");
  CHECK(Outcome(decision, 4) ==
        "waits, for it would not end before job 1 starts there, in 3 h at the latest; with "
        "resources.time_limit_seconds it might; starts when job 1 ends, in 4 h at the latest");
}

TEST_CASE("backfill: what a reservation leaves is free for all, also without an end") {
  const std::vector<NodeCapacity> nodes = Racks({4, 4});
  const std::vector<Holding> holding = {Until(kStart + 3 * kHourNs, Held(7, {4}, "n1"))};
  const Decided decision =
      Decide(nodes, holding, {For(kHourNs, Job(1, {6})), Job(2, {2}), Job(3, {1})}, {}, kStart);
  CHECK(Outcome(decision, 2) == "starts on n2:2");
  CHECK(Outcome(decision, 3) ==
        "waits, for it would not end before job 1 starts there, in 3 h at the latest; with "
        "resources.time_limit_seconds it might; starts when job 1 ends, in 4 h at the latest");
}

TEST_CASE("backfill: without ends to wait for there are no reservations") {
  const std::vector<NodeCapacity> nodes = Racks({4, 4});
  const std::vector<Waiting> queue = {For(kHourNs, Job(1, {8})), Job(2, {2})};
  const Decided endless = Decide(nodes, {Held(7, {4}, "n1")}, queue, {}, 100 * kSecondNs);
  CHECK(endless.reservations.empty());
  CHECK(Outcome(endless, 2) == "starts on n2:2");
  // One end is not enough.
  const Decided half = Decide(
      nodes, {Held(7, {2}, "n1"), Until(kStart + kHourNs, Held(8, {2}, "n1"))}, queue, {}, kStart);
  CHECK(half.reservations.empty());
  CHECK(Outcome(half, 2) == "job 1 has waited for more than 10 minutes and goes first");
}

TEST_CASE("backfill: those behind the last reservation may pass until they lose their patience") {
  const std::vector<NodeCapacity> nodes = Racks({4, 4});
  const std::vector<Holding> holding = {Until(kStart + 3 * kHourNs, Held(7, {4}, "n1"))};
  SchedulingPolicy policy;
  policy.most_reservations = 1;
  const std::vector<Waiting> queue = {For(kHourNs, Job(1, {8})), For(kHourNs, Job(2, {8})),
                                      For(kHourNs, Job(3, {2}))};
  const Decided soon = Decide(nodes, holding, queue, policy, 300 * kSecondNs);
  CHECK(soon.reservations.size() == 1);
  CHECK(Outcome(soon, 3) == "starts on n2:2");
  CHECK(Outcome(Decide(nodes, holding, queue, policy, kStart), 3) ==
        "job 2 has waited for more than 10 minutes and goes first");
}

TEST_CASE("backfill: one that is only in a reservation's way loses no patience with short jobs") {
  const std::vector<Holding> holding = {Until(kStart + 100 * kHourNs, Held(7, {2}, "n1"))};
  const Decided decision = Decide(
      Racks({4}), holding, {Job(1, {4}), Job(2, {2}), For(kHourNs, Job(3, {2}))}, {}, kStart);
  CHECK(decision.reservations.contains(1));
  CHECK(Outcome(decision, 2).find("would not end before job 1 starts") != std::string::npos);
  CHECK(Outcome(decision, 3) == "starts on n1:2");
}

TEST_CASE("backfill: many that can have no reservation cost no more than some looks") {
  std::vector<Holding> holding;
  for (uint64_t i = 0; i < 400; ++i) {
    const auto end = kStart + static_cast<int64_t>(i + 1) * kSecondNs;
    holding.push_back(Until(end, Held(10000 + i, {1}, "n1")));
  }
  std::vector<Waiting> queue;
  for (uint32_t i = 0; i < 3000; ++i) {
    queue.push_back(For(kHourNs, Job(i + 1, {401 + i})));
  }
  const Decided decision = Decide(Racks({400}), holding, queue, {}, kStart);
  CHECK(decision.reservations.empty());
  CHECK(decision.waits.size() >= 1000);
}

TEST_CASE("backfill: a job that runs on beyond its end moves reservations and breaks nothing") {
  const std::vector<Holding> holding = {Until(kStart - kHourNs, Held(7, {4}, "n1"))};
  const Decided decision = Decide(Racks({4}), holding, {For(kHourNs, Job(1, {4}))}, {}, kStart);
  CHECK(Outcome(decision, 1) ==
        "waits for 4 CPUs; 0 of 4 are free; starts when job 7 ends, in 1 s at the latest");
}

TEST_CASE("backfill: times beyond all bounds are no times") {
  constexpr int64_t kLong = int64_t{1000000000} * kSecondNs;
  std::vector<Waiting> queue;
  for (uint64_t id = 1; id <= 30; ++id) queue.push_back(For(kLong, Job(id, {4})));
  const Decided decision =
      Decide(Racks({4}), {Until(kStart + kLong, Held(77, {4}, "n1"))}, queue, {}, kStart);
  for (const auto& [id, reservation] : decision.reservations) {
    CHECK(reservation.start_unix_ns >= kStart + kLong);
  }
  CHECK(decision.reservations.size() > 3);
}

namespace {

// A cluster over time: jobs come, end in time or before, and some have no limit.
class Simulation {
 public:
  Simulation(uint64_t seed, bool early_ends) : random_(seed), early_ends_(early_ends) {
    const uint32_t nodes = 1 + Below(4);
    for (uint32_t i = 0; i < nodes; ++i) cpus_.push_back(2 + Below(7));
  }

  // Those that were told a start by the last decision have started by then, or are told one that is
  // no later, though others have come behind them.
  void Turn() {
    End();
    Come();
    const Decided decision = Decide(Racks(cpus_), holding_, waiting_, {}, now_, reserved_);
    CheckNobodyCollides(decision);
    if (!early_ends_) CheckNoneLater(decision);
    reserved_ = decision.reservations;
    reservations += static_cast<int>(reserved_.size());
    backfilled += Backfilled(decision);
    for (const auto& [id, allocation] : decision.allocations) Start(id, allocation);
    now_ += 1 + Below(600) * kSecondNs;
    // No reservation is passed over by the clock: a daemon turns at each end.
    for (const Holding& held : holding_) now_ = std::min(now_, ends_[held.job_id]);
  }
  int reservations = 0, backfilled = 0;

 private:
  uint32_t Below(uint64_t bound) { return static_cast<uint32_t>(random_() % bound); }

  void End() {
    std::erase_if(holding_, [&](const Holding& held) { return ends_[held.job_id] <= now_; });
  }
  void Come() {
    while (waiting_.size() < 8) {
      const uint32_t limit = Below(4) == 0 && early_ends_ ? 0 : 1 + Below(20);
      Waiting job = Job(next_, {1 + Below(8), 1 + Below(2)});
      job.submitted_unix_ns = job.waits_since_unix_ns = now_;
      job.asked.runs_ns = limit * 300 * kSecondNs;
      waiting_.push_back(job);
      ++next_;
    }
  }
  void Start(uint64_t id, const std::vector<v1::NodeAllocation>& allocation) {
    const auto job = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Waiting& one) { return one.job_id == id; });
    const int64_t runs = job->asked.runs_ns == 0 ? 900 * kSecondNs : job->asked.runs_ns;
    holding_.push_back({id, job->asked.resources, allocation, "",
                        job->asked.runs_ns == 0 ? 0 : now_ + job->asked.runs_ns});
    ends_[id] = now_ + (early_ends_ ? 1 + static_cast<int64_t>(random_() % runs) : runs);
    waiting_.erase(job);
  }
  int Backfilled(const Decided& decision) const {
    int count = 0;
    for (const auto& [id, allocation] : decision.allocations) {
      for (const auto& [other, reservation] : decision.reservations) count += other < id ? 1 : 0;
    }
    return count;
  }
  void CheckNoneLater(const Decided& decision) const {
    for (const auto& [id, before] : reserved_) {
      if (decision.allocations.contains(id)) continue;
      REQUIRE(decision.reservations.contains(id));
      CHECK(decision.reservations.at(id).start_unix_ns <= before.start_unix_ns);
    }
  }
  // At no moment is more taken of a node than there is, by limits: counted at each beginning,
  // without the code under test.
  void CheckNobodyCollides(const Decided& decision) const {
    struct Part {
      std::string node;
      uint64_t cpus;
      int64_t from, until;
    };
    std::vector<Part> parts;
    const auto add = [&](const v1::ResourceRequest& each,
                         const std::vector<v1::NodeAllocation>& allocation, int64_t from,
                         int64_t until) {
      for (const v1::NodeAllocation& part : allocation) {
        parts.push_back({part.node(), uint64_t{each.cpus_per_rank()} * part.ranks(), from, until});
      }
    };
    constexpr int64_t kEver = int64_t{1} << 62;
    for (const Holding& held : holding_) {
      add(held.resources, held.allocation, now_,
          held.ends_unix_ns == 0 ? kEver : held.ends_unix_ns);
    }
    for (const Waiting& job : waiting_) {
      const auto started = decision.allocations.find(job.job_id);
      const auto reserved = decision.reservations.find(job.job_id);
      if (started != decision.allocations.end()) {
        add(job.asked.resources, started->second, now_,
            job.asked.runs_ns == 0 ? kEver : now_ + job.asked.runs_ns);
      } else if (reserved != decision.reservations.end()) {
        const int64_t from = reserved->second.start_unix_ns;
        add(job.asked.resources, reserved->second.allocation, from,
            job.asked.runs_ns == 0 ? kEver : from + job.asked.runs_ns);
      }
    }
    for (const Part& at : parts) {
      uint64_t taken = 0;
      for (const Part& part : parts) {
        const bool then = part.from <= at.from && at.from < part.until;
        if (then && part.node == at.node) taken += part.cpus;
      }
      CHECK(taken <= cpus_[std::stoul(at.node.substr(1)) - 1]);
    }
  }

  std::mt19937_64 random_;
  const bool early_ends_;
  std::vector<uint32_t> cpus_;
  std::vector<Holding> holding_;
  std::vector<Waiting> waiting_;
  std::map<uint64_t, Reservation> reserved_;
  std::map<uint64_t, int64_t> ends_;
  uint64_t next_ = 1;
  int64_t now_ = kStart;
};

}  // namespace

TEST_CASE("backfill: no reservation is delayed by a later job nor runs into another") {
  int reservations = 0, backfilled = 0;
  for (int seed = 1; seed <= tests::Tries(400); ++seed) {
    INFO("seed " << seed);
    for (const bool early_ends : {false, true}) {
      Simulation simulation(static_cast<uint64_t>(seed), early_ends);
      for (int turn = 0; turn < 100; ++turn) simulation.Turn();
      reservations += simulation.reservations;
      backfilled += simulation.backfilled;
    }
  }
  CHECK(reservations > tests::Tries(5000));
  CHECK(backfilled > tests::Tries(500));
}

TEST_CASE("backfill: a large job starts in time in an endless queue of small ones") {
  std::vector<Holding> holding;
  std::map<uint64_t, int64_t> ends;
  std::vector<Waiting> waiting;
  std::map<uint64_t, Reservation> before;
  std::mt19937_64 random(3);
  const std::vector<NodeCapacity> nodes = Racks({4, 4, 4, 4});
  int64_t told = 0;
  uint64_t next = 1;
  uint64_t passed = 0;
  for (int64_t now = kStart;; now += 60 * kSecondNs) {
    REQUIRE(now < kStart + 1000 * kHourNs);
    std::erase_if(holding, [&](const Holding& held) { return ends[held.job_id] <= now; });
    while (waiting.size() < 20) {
      const auto ranks = static_cast<uint32_t>(1 + random() % 3);
      Waiting job = Job(next, {next == 100 ? 16 : ranks});
      job.submitted_unix_ns = job.waits_since_unix_ns = now;
      job.asked.runs_ns = static_cast<int64_t>(1 + random() % 10) * 600 * kSecondNs;
      waiting.push_back(job);
      ++next;
    }
    const Decided decision =
        Decide(nodes, holding, waiting, {std::chrono::hours(10000)}, now, before);
    if (decision.allocations.contains(100)) {
      CHECK(now <= told + 60 * kSecondNs);
      break;
    }
    const auto reserved = decision.reservations.find(100);
    if (told == 0 && reserved != decision.reservations.end()) {
      told = reserved->second.start_unix_ns;
    }
    before = decision.reservations;
    for (const auto& [id, allocation] : decision.allocations) {
      const auto job = std::find_if(waiting.begin(), waiting.end(),
                                    [id = id](const Waiting& one) { return one.job_id == id; });
      holding.push_back({id, job->asked.resources, allocation, "", now + job->asked.runs_ns});
      ends[id] = now + job->asked.runs_ns;
      if (id > 100) ++passed;
      waiting.erase(job);
    }
  }
  CHECK(told > 0);
  CHECK(passed > 0);
}

}  // namespace trireme::coordinator
