// The promises of docs/adr/0019, by seeded partitions in simulated time.
#include <catch2/catch.hpp>

#include "tests/coordinator/reconciler/partitioned_cluster.h"
#include "tests/sanitizer.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kMinute = 60;
// From the cut to the new start: 60 s from the last word, and turns of everybody.
constexpr int64_t kElsewhere = 75;

void CutOff(PartitionedCluster& cluster, const std::string& machine) {
  cluster.LinesOf(machine) = {.daemon = false, .folder = false, .nodes = false};
}

// Something happens to somebody.
void Disturb(PartitionedCluster& cluster) {
  const std::vector<std::string> machines = cluster.machines();
  const std::string machine = machines[cluster.Random(static_cast<uint32_t>(machines.size()))];
  PartitionedCluster::Lines& lines = cluster.LinesOf(machine);
  switch (cluster.Random(11)) {
    case 0:
      return CutOff(cluster, machine);
    case 1:
      lines.daemon = !lines.daemon;
      return;
    case 2:
      lines.folder = !lines.folder;
      return;
    case 3:
      lines.nodes = !lines.nodes;
      return;
    case 4:
      cluster.daemon_reaches_folder = !cluster.daemon_reaches_folder;
      return;
    case 5:
      return cluster.KillDaemon();
    case 6:
      return cluster.StartDaemon();
    case 7:
      return cluster.StopAgent(machine);
    case 8:
      return cluster.StartAgent(machine);
    case 9:
      return cluster.StandStill(1 + cluster.Random(90));
    default:
      return cluster.Heal();
  }
}

}  // namespace

TEST_CASE("partition: a job of a node that is cut off goes on elsewhere, and its ranks are gone") {
  int taken_away = 0, published_late = 0;
  constexpr int kSeeds = tests::Tries(200);
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    INFO("seed " << seed);
    PartitionedCluster cluster(seed, 4);
    cluster.commits_stand_still = true;
    const uint64_t job = cluster.Submit(seed % 2 == 0 ? 4 : 8);  // on one node, on two
    cluster.Run(5 + cluster.Random(20));
    REQUIRE(cluster.AttemptOf(job) == 1);
    const std::vector<std::string> nodes = cluster.NodesOf(job);
    const std::string lost = nodes[cluster.Random(static_cast<uint32_t>(nodes.size()))];
    CutOff(cluster, lost);
    cluster.Run(kElsewhere);
    CHECK(cluster.AttemptOf(job) == 2);
    CHECK(cluster.Living(job) == std::set<uint32_t>{2});
    CHECK(cluster.overlaps() == 0);
    const uint64_t steps = cluster.Steps(job);
    cluster.Run(10);
    CHECK(cluster.Steps(job) > steps);
    cluster.Heal();
    cluster.Run(kMinute);
    CHECK(cluster.AttemptOf(job) == 2);
    CHECK(cluster.Living(job) == std::set<uint32_t>{2});
    taken_away += cluster.taken_away();
    published_late += cluster.published_late();
  }
  CHECK(taken_away > kSeeds / 10);
  CHECK(published_late > kSeeds / 10);
}

TEST_CASE("partition: a daemon that is away for ten minutes costs no rank and no step") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    PartitionedCluster cluster(seed, 3);
    const uint64_t alone = cluster.Submit(4);
    const uint64_t wide = cluster.Submit(8);
    cluster.Run(10);
    const uint64_t before = cluster.Done(alone), wide_before = cluster.Done(wide);
    cluster.KillDaemon();
    // Its machine has the folder, too, for half of them: then jobs on several nodes go on.
    const bool with_folder = seed % 2 == 1;
    for (const std::string& machine : cluster.machines()) {
      cluster.LinesOf(machine).folder = !with_folder;
    }
    cluster.Run(10 * kMinute);
    constexpr uint64_t kAll = 10 * kMinute * 10;  // one each tenth of a second
    CHECK(cluster.Living(wide) == std::set<uint32_t>{1});
    CHECK(cluster.Done(wide) - wide_before == kAll);
    if (with_folder) {
      // One node has no word of anybody: it ends, in the time that it was told.
      CHECK(cluster.Living(alone).empty());
      CHECK(cluster.Done(alone) - before >= 14 * 10);
      CHECK(cluster.Done(alone) - before <= 30 * 10);
    } else {
      CHECK(cluster.Living(alone) == std::set<uint32_t>{1});
      CHECK(cluster.Done(alone) - before == kAll);
    }
    cluster.Heal();
    cluster.Run(kMinute);
    CHECK(cluster.AttemptOf(wide) == 1);
    CHECK(cluster.AttemptOf(alone) == (with_folder ? 2 : 1));
    CHECK(cluster.Living(alone) == std::set<uint32_t>{cluster.AttemptOf(alone)});
    const uint64_t steps = cluster.Steps(alone);
    cluster.Run(10);
    CHECK(cluster.Steps(alone) > steps);  // from its checkpoint
  }
}

TEST_CASE("partition: a daemon that stands still costs no rank and no step") {
  for (uint32_t seed = 0; seed < tests::Tries(100); ++seed) {
    INFO("seed " << seed);
    PartitionedCluster cluster(seed, 4);
    const uint64_t alone = cluster.Submit(4);
    const uint64_t wide = cluster.Submit(8);
    cluster.Run(10);
    const uint64_t before = cluster.Done(alone), wide_before = cluster.Done(wide);
    // For as long that agents would have been lost, and for longer than claims last.
    const int64_t still = 5 + cluster.Random(120);
    cluster.StandStill(still);
    cluster.Run(still + 30);
    CHECK(cluster.revoked() == 0);
    const auto all = static_cast<uint64_t>(still + 30) * 10;  // one each tenth of a second
    CHECK(cluster.Done(alone) - before == all);
    CHECK(cluster.Done(wide) - wide_before == all);
    CHECK(cluster.AttemptOf(alone) == 1);
    CHECK(cluster.AttemptOf(wide) == 1);
    // A node that is cut off afterwards is left in the same time as ever.
    CutOff(cluster, cluster.NodesOf(alone)[0]);
    cluster.Run(kElsewhere);
    CHECK(cluster.AttemptOf(alone) == 2);
    CHECK(cluster.overlaps() == 0);
  }
}

TEST_CASE("partition: a node that reaches the folder alone publishes nothing once it is replaced") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    INFO("seed " << seed);
    PartitionedCluster cluster(seed, 2);
    const uint64_t job = cluster.Submit(4);
    cluster.Run(10);
    cluster.LinesOf(cluster.NodesOf(job)[0]).daemon = false;
    cluster.Run(kElsewhere);
    CHECK(cluster.AttemptOf(job) == 2);
    CHECK(cluster.Living(job) == std::set<uint32_t>{2});  // the old one has read so
    CHECK(cluster.overlaps() == 0);
  }
}

TEST_CASE("partition: a node that steps with one that is being ended ends in time, too") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    PartitionedCluster cluster(seed, 4);
    cluster.KillSlowly();
    const uint64_t job = cluster.Submit(8);
    cluster.Run(10);
    const std::vector<std::string> nodes = cluster.NodesOf(job);
    cluster.LinesOf(nodes[1]) = {.daemon = false, .folder = false, .nodes = true};
    const auto is_left = [&] {
      return cluster.StatusText(job).find("JOB_RECOVERING") != std::string::npos;
    };
    for (int second = 0; second < 60 && !is_left(); ++second) cluster.Run(1);
    REQUIRE(is_left());
    cluster.Run(11);  // the other one is told, and steps on until it is killed
    CutOff(cluster, nodes[1]);
    cluster.Run(kElsewhere);
    CHECK(cluster.AttemptOf(job) == 2);
    CHECK(cluster.overlaps() == 0);
  }
}

TEST_CASE(
    "partition: a machine that has the name of a lost one takes its place, when that has ended") {
  for (uint32_t seed = 0; seed < tests::Tries(100); ++seed) {
    INFO("seed " << seed);
    // The lost node is the only one, so nobody but the other machine can go on with the job.
    PartitionedCluster cluster(seed, 1, true);
    cluster.KillSlowly();
    const uint64_t job = cluster.Submit(4);
    cluster.Run(10);
    const std::string lost = cluster.HolderOf("n1");
    // It reaches the folder, which for a while the daemon does not.
    cluster.LinesOf(lost).daemon = false;
    const bool late = seed % 2 == 1;
    cluster.daemon_reaches_folder = !late;
    cluster.Run(late ? 50 : 5);
    cluster.daemon_reaches_folder = true;
    cluster.Run(kElsewhere);
    CHECK(cluster.HolderOf("n1") != lost);
    CHECK(cluster.AttemptOf(job) == 2);
    CHECK(cluster.Living(job) == std::set<uint32_t>{2});
    CHECK(cluster.overlaps() == 0);
    // Who was there before is somebody else now.
    cluster.Heal();
    cluster.Run(kMinute);
    CHECK(cluster.HolderOf("n1") != lost);
    CHECK(cluster.Living(job) == std::set<uint32_t>{2});
  }
}

namespace {

// Rounds of cuts, deaths and restarts; at each start it is looked whether an older attempt lives.
// Then all is mended, and the job goes on by one attempt. Returns how many names were taken over.
int Harass(PartitionedCluster& cluster) {
  cluster.commits_stand_still = true;
  if (cluster.Random(2) == 0) cluster.KillSlowly();
  const uint64_t job = cluster.Submit(cluster.Random(2) == 0 ? 4 : 8);
  cluster.Run(5);
  for (int round = 0; round < 8; ++round) {
    Disturb(cluster);
    cluster.Run(1 + cluster.Random(40));
  }
  cluster.Heal();
  cluster.Run(2 * kMinute);
  INFO(cluster.StatusText(job));
  CHECK(cluster.Living(job) == std::set<uint32_t>{cluster.AttemptOf(job)});
  const uint64_t steps = cluster.Steps(job);
  cluster.Run(10);
  CHECK(cluster.Steps(job) > steps);
  return cluster.names_taken();
}

// Under a sanitizer one takes eight times as long.
constexpr uint32_t kSchedules = tests::kSanitizer ? 50 : 1000;

}  // namespace

TEST_CASE("partition: under any schedule one attempt lives, and all goes on when it is over") {
  for (uint32_t seed = 0; seed < kSchedules; ++seed) {
    INFO("seed " << seed);
    PartitionedCluster cluster(seed, 3);
    CHECK(Harass(cluster) == 0);
  }
}

TEST_CASE("partition: under any schedule one attempt lives where machines share names, too") {
  int names_taken = 0;
  for (uint32_t seed = 0; seed < kSchedules; ++seed) {
    INFO("seed " << seed);
    PartitionedCluster cluster(seed, seed % 2 == 0 ? 2 : 3, true);
    names_taken += Harass(cluster);
  }
  CHECK(names_taken > static_cast<int>(kSchedules / 10));
}

}  // namespace trireme::coordinator
