// Ranks that keep real flight recorders: alive, stopped, dead, and the node that only watches.
#include "coordinator/keeper/rank_watch.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "runtime/recorder/flight_recorder.h"
#include "tests/coordinator/keeper/keeper_bench.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

bool IsRunning(const v1::AttemptReport& report) { return report.phase() == v1::ATTEMPT_RUNNING; }

auto RankIs(int rank, v1::RankLife life) {
  return [=](const v1::AttemptReport& report) {
    return report.ranks_size() > rank && report.ranks(rank).life() == life;
  };
}

int PidOf(const KeeperBench& bench, int rank) {
  const auto recording = recorder::ReadRecording(bench.Folder(1) + "/recorder/rank-00" +
                                                 std::to_string(rank) + ".rec");
  REQUIRE(recording.ok());
  return static_cast<int>(recording->pid);
}

TEST_CASE("ranks at work are told with position, peer and progress", "[mpi]") {
  const auto bench = KeeperBench::Recorded(2);
  const auto keeper = bench->Open();
  keeper->SetDesired(bench->Desired({bench->Attempt(1)}));
  const v1::AttemptReport report = bench->Await(*keeper, 1, IsRunning);
  REQUIRE(report.ranks_size() == 2);
  for (int rank = 0; rank < 2; ++rank) {
    const v1::RankReport& seen = report.ranks(rank);
    CHECK(seen.rank() == static_cast<uint32_t>(rank));
    CHECK(seen.life() == v1::RANK_ALIVE);
    CHECK(seen.step() == 3);
    CHECK(seen.position() ==
          "F of micro-batch 2, virtual stage 0 (peer rank " + std::to_string(1 - rank) + ")");
    CHECK(seen.peer() == 1 - rank);
  }
  CHECK(report.progress().steps_done() == 2);
  CHECK(report.progress().loss() == 1.5);
  // Its position does not change.
  bench->Await(*keeper, 1, [&](const v1::AttemptReport& later) {
    return later.ranks(1).still_ms() > report.ranks(1).still_ms();
  });
  keeper->SetDesired(bench->Desired({bench->Attempt(1, v1::ATTEMPT_STOP)}));
  const v1::AttemptReport end = bench->AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 75);
  CHECK(end.progress().steps_done() == 2);
  bench->CheckNothingLeft(1);
}

TEST_CASE("a stopped rank is told apart from a dead one", "[mpi]") {
  const auto bench = KeeperBench::Recorded(2);
  auto keeper = bench->Open();
  keeper->SetDesired(bench->Desired({bench->Attempt(1)}));
  bench->Await(*keeper, 1, IsRunning);
  kill(PidOf(*bench, 1), SIGSTOP);
  const v1::AttemptReport stopped = bench->Await(*keeper, 1, RankIs(1, v1::RANK_STOPPED));
  CHECK(stopped.ranks(0).life() == v1::RANK_ALIVE);
  // A keeper that comes anew sees the same.
  keeper.reset();
  keeper = bench->Open();
  keeper->SetDesired(bench->Desired({bench->Attempt(1)}));
  bench->Await(*keeper, 1, RankIs(1, v1::RANK_STOPPED));
  kill(PidOf(*bench, 1), SIGCONT);
  bench->Await(*keeper, 1, RankIs(1, v1::RANK_ALIVE));
  kill(PidOf(*bench, 1), SIGKILL);
  bench->Await(*keeper, 1, RankIs(1, v1::RANK_DEAD));
  const v1::AttemptReport end = bench->AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 137);
  CHECK(end.ranks(1).life() == v1::RANK_DEAD);
  CHECK(end.failure().rank() == 1);
  CHECK(end.failure().headline().find("rank 1 died") == 0);
  CHECK(end.failure().headline().find("at step 3, F of micro-batch 2") != std::string::npos);
  bench->CheckNothingLeft(1);
}

// mpirun's remote shell: a node daemon on this machine.
void SetRemoteShell(const KeeperBench& bench) {
  const std::string shell = bench.root + "/remote_shell";
  std::ofstream(shell) << "#!/bin/sh\nshift\nexec /bin/sh -c \"$*\"\n";
  chmod(shell.c_str(), 0755);
  setenv("OMPI_MCA_plm_rsh_agent", shell.c_str(), 1);
}

TEST_CASE("ranks of two nodes are started by the first and watched by both", "[mpi]") {
  const auto bench = KeeperBench::Recorded(1);
  SetRemoteShell(*bench);
  char host[256];
  REQUIRE(gethostname(host, sizeof host) == 0);
  v1::DesiredAttempt attempt = bench->Attempt(1);
  attempt.mutable_launch()->mutable_allocation(0)->set_node(host);
  v1::NodeAllocation* second = attempt.mutable_launch()->add_allocation();
  second->set_node("n2");
  second->set_ranks(1);
  bench->options.node = "n2";
  const auto other = bench->Open();
  bench->options.node = host;
  bench->options.state_folder += "_of_the_first";
  const auto keeper = bench->Open();
  for (const auto& each : {other.get(), keeper.get()}) each->SetDesired(bench->Desired({attempt}));
  const v1::AttemptReport first = bench->Await(*keeper, 1, IsRunning);
  const v1::AttemptReport watched = bench->Await(*other, 1, IsRunning);
  unsetenv("OMPI_MCA_plm_rsh_agent");
  REQUIRE((first.ranks_size() == 1 && watched.ranks_size() == 1));
  CHECK(first.ranks(0).rank() == 0);
  CHECK(watched.ranks(0).rank() == 1);
  CHECK(watched.ranks(0).life() == v1::RANK_ALIVE);
  attempt.set_desired_state(v1::ATTEMPT_STOP);
  attempt.set_grace_seconds(60);
  for (const auto& each : {other.get(), keeper.get()}) each->SetDesired(bench->Desired({attempt}));
  const v1::AttemptReport end = bench->AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 75);
  CHECK(end.launcher());
  CHECK_FALSE(bench->AwaitEnd(*other, 1).launcher());
  bench->CheckNothingLeft(1);
}

TEST_CASE("a pid that is another process's now is a dead rank") {
  KeeperBench bench("");
  fs::create_directories(bench.Folder(1) + "/recorder");
  // Ours, which carries no mark.
  const auto recorder =
      recorder::FlightRecorder::Create(bench.Folder(1) + "/recorder/rank-004.rec", 4, 6);
  REQUIRE(recorder.ok());
  (*recorder)->SetState(recorder::RankState::kRunning);
  RankWatch watch({{7, 1, bench.run}, bench.Folder(1) + "/recorder", 4, 2});
  watch.Look(1);
  REQUIRE(watch.ranks().size() == 2);
  CHECK(watch.ranks()[0].rank() == 4);
  CHECK(watch.ranks()[0].life() == v1::RANK_DEAD);
  CHECK(watch.ranks()[1].life() == v1::RANK_STARTING);
  CHECK_FALSE(watch.all_at_work());
  CHECK_FALSE(watch.progress().has_value());
}

TEST_CASE("whom a rank waits for and how long its newest step took are told") {
  KeeperBench bench("");
  fs::create_directories(bench.Folder(1) + "/recorder");
  const auto recorder =
      recorder::FlightRecorder::Create(bench.Folder(1) + "/recorder/rank-001.rec", 1, 4);
  REQUIRE(recorder.ok());
  RankWatch watch({{7, 1, bench.run}, bench.Folder(1) + "/recorder", 1, 1});
  const v1::RankReport& rank = watch.ranks()[0];
  const auto look_after = [&](int64_t ms) {
    const auto now = recorder::ReadRecording(bench.Folder(1) + "/recorder/rank-001.rec");
    REQUIRE(now.ok());
    watch.Look(std::max(now->updated_ns, now->waited_ns) + ms * 1000000);
    return now->updated_ns;
  };
  look_after(500);
  CHECK((rank.still_ms() == 0 && rank.waiting_ms() == 0 && !rank.has_timing()));
  (*recorder)->At({3, 7, v1::RECV_ACT, 0, 2, 0});
  (*recorder)->NoteTiming({2, 12.5, 8.0, 4.0, 0.5});
  const int64_t moved_ns = look_after(2000);
  CHECK((rank.still_ms() == 2000 && rank.waiting_ms() == 0 && rank.peer() == 0));
  CHECK((rank.timing().step() == 2 && rank.timing().step_ms() == 12.5));
  CHECK((rank.timing().compute_ms() == 8.0 && rank.timing().wait_ms() == 4.0));
  CHECK(rank.timing().offload_ms() == 0.5);
  (*recorder)->NoteWait({moved_ns, 2, 1, false, "pipeline"});
  look_after(3000);
  CHECK((rank.still_ms() >= 3000 && rank.waiting_ms() > 3000 && rank.peer() == 2));
  // What follows a wait is another thing, whether or not it is an instruction.
  (*recorder)->NoteWait({});
  look_after(100);
  CHECK((rank.still_ms() == 100 && rank.waiting_ms() == 0 && rank.peer() == 0));
}

// As those of a Slurm job, of which only the recordings are seen: no process, and another clock.
TEST_CASE("ranks of another machine are judged by what they record, and by their own clock") {
  KeeperBench bench("");
  fs::create_directories(bench.Folder(1) + "/recorder");
  const std::string path = bench.Folder(1) + "/recorder/rank-001.rec";
  const auto recorder = recorder::FlightRecorder::Create(path, 1, 4);
  REQUIRE(recorder.ok());
  const WatchedRanks far{{7, 1, bench.run}, bench.Folder(1) + "/recorder", 1, 1, /*far=*/true};
  constexpr int64_t kSecondNs = 1000000000;
  RankWatch watch(far);
  const v1::RankReport& rank = watch.ranks()[0];
  watch.Look(1);
  CHECK((rank.life() == v1::RANK_STARTING && !watch.all_at_work()));
  (*recorder)->SetState(recorder::RankState::kRunning);
  (*recorder)->At({3, 7, v1::RECV_ACT, 0, 2, 0});
  const int64_t moved_ns = recorder::ReadRecording(path)->updated_ns;
  // That machine was started an hour after this one.
  RankWatch later(far);
  const v1::RankReport& same = later.ranks()[0];
  const int64_t ahead_ns = 3600 * kSecondNs;
  later.Look(moved_ns + ahead_ns);
  CHECK((same.life() == v1::RANK_ALIVE && same.still_ms() == 0 && later.all_at_work()));
  later.Look(moved_ns + ahead_ns + 5 * kSecondNs);
  CHECK((same.life() == v1::RANK_ALIVE && same.still_ms() == 5000));
  // Who looks for the first time while it waits knows its clock by the beginning of the wait.
  (*recorder)->NoteWait({moved_ns + 10 * kSecondNs, 2, 1, false, "pipeline"});
  RankWatch anew(far);
  anew.Look(moved_ns + ahead_ns + 10 * kSecondNs);
  anew.Look(moved_ns + ahead_ns + 12 * kSecondNs);
  CHECK(anew.ranks()[0].waiting_ms() == 2001);
  (*recorder)->SetState(recorder::RankState::kFailed);
  later.Look(moved_ns + ahead_ns + 13 * kSecondNs);
  CHECK((same.life() == v1::RANK_DEAD && later.first_dead() == 1));
  const auto another =
      recorder::FlightRecorder::Create(bench.Folder(1) + "/recorder/rank-002.rec", 2, 4);
  REQUIRE(another.ok());
  (*another)->SetState(recorder::RankState::kStopped);
  RankWatch next({far.mark, far.recorder_folder, 2, 1, /*far=*/true});
  next.Look(1);
  CHECK((next.ranks()[0].life() == v1::RANK_ENDED && !next.first_dead()));
}

TEST_CASE("a node that holds no first place watches its ranks and kills them") {
  const auto bench = KeeperBench::Recorded(1);
  v1::DesiredAttempt attempt = bench->Attempt(1);
  v1::NodeAllocation* here = attempt.mutable_launch()->add_allocation();
  here->set_node("n2");
  here->set_ranks(1);
  bench->options.node = "n2";
  auto keeper = bench->Open();
  keeper->SetDesired(bench->Desired({attempt}));
  CHECK(keeper->Poll().attempts(0).phase() == v1::ATTEMPT_STARTING);
  CHECK_FALSE(fs::exists(bench->Folder(1)));
  // As the node daemon of mpirun starts it.
  fs::create_directories(bench->Folder(1) + "/recorder");
  const pid_t rank = fork();
  if (rank == 0) {
    setenv("TRIREME_ATTEMPT", "7-1", 1);
    setenv("TRIREME_RUN_FOLDER", bench->run.c_str(), 1);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    const std::string recordings = bench->Folder(1) + "/recorder";
    execl(bench->options.worker.c_str(), "rank", "--run-dir", bench->run.c_str(), "--recorder-dir",
          recordings.c_str(), nullptr);
    _exit(127);
  }
  const v1::AttemptReport report = bench->Await(*keeper, 1, IsRunning);
  REQUIRE(report.ranks_size() == 1);
  CHECK(report.ranks(0).rank() == 1);
  CHECK(report.ranks(0).life() == v1::RANK_ALIVE);
  CHECK_FALSE(report.has_progress());
  attempt.set_desired_state(v1::ATTEMPT_KILL);
  keeper->SetDesired(bench->Desired({attempt}));
  const v1::AttemptReport end = bench->AwaitEnd(*keeper, 1);
  CHECK_FALSE(end.launcher());
  int status = 0;
  REQUIRE(waitpid(rank, &status, 0) == rank);
  CHECK(status == SIGKILL);
  // The job has gone on without this node: what it hears of late is over.
  fs::create_directories(bench->Folder(3));
  attempt.set_attempt(2);
  attempt.set_desired_state(v1::ATTEMPT_RUN);
  keeper->SetDesired(bench->Desired({attempt}));
  bench->AwaitEnd(*keeper, 2);
}

}  // namespace
}  // namespace trireme::keeper
