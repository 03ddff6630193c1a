// The first cause is named whoever else complains.
#include "coordinator/launcher/diagnosis.h"

#include <signal.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace trireme::launcher {
namespace {

using recorder::RankState;
using recorder::Recording;

constexpr uint32_t kI = 3, kReduce = 10;

Recording Running(int rank, uint64_t step, uint32_t kind, int64_t updated_ns) {
  Recording recording;
  recording.rank = rank;
  recording.ranks = 4;
  recording.pid = 100 + rank;
  recording.state = RankState::kRunning;
  recording.position = {step, 7, kind, 0, 2, -1};
  recording.updated_ns = updated_ns;
  return recording;
}

Recording Failed(int rank, uint64_t step, int64_t failed_ns, const std::string& message,
                 recorder::Blame blame = recorder::Blame::kItself) {
  Recording recording = Running(rank, step, kReduce, failed_ns - 1);
  recording.state = RankState::kFailed;
  recording.failed_ns = failed_ns;
  recording.failure = message;
  recording.blame = blame;
  return recording;
}

std::map<int, Recording> ByRank(std::vector<Recording> list) {
  std::map<int, Recording> recordings;
  for (Recording& recording : list) recordings[recording.rank] = recording;
  return recordings;
}

std::string TextOf(const Diagnosis& diagnosis) {
  std::string text = diagnosis.headline;
  for (const auto* lines : {&diagnosis.others, &diagnosis.evidence}) {
    for (const std::string& line : *lines) text += "\n" + line;
  }
  return text + "\n" + diagnosis.next_action;
}

constexpr const char* kKilled =
    "--------------------------------------------------------------------------\n"
    "mpirun noticed that process rank 3 with PID 4711 on node box exited on signal 9 (Killed).\n"
    "--------------------------------------------------------------------------\n";

TEST_CASE("a killed rank is the cause, though others complain of a lost peer first") {
  const Diagnosis diagnosis =
      FindCause(ByRank({Running(0, 12, kReduce, 50),
                        Failed(1, 12, 60, "REDUCE: rank 3 is gone", recorder::Blame::kPeer),
                        Running(2, 12, kReduce, 50), Running(3, 12, kI, 40)}),
                ParseMpirunWords(kKilled), {137, false, false});
  CHECK(diagnosis.rank == 3);
  CHECK(diagnosis.signal == SIGKILL);
  CHECK(diagnosis.step == 12);
  CHECK(diagnosis.headline ==
        "rank 3 died (signal 9, Killed) at step 12, I of micro-batch 2, virtual stage 0");
  const std::string text = TextOf(diagnosis);
  CHECK(text.find("ranks 0, 2: at step 12, REDUCE") != std::string::npos);
  CHECK(text.find("memory") != std::string::npos);
  CHECK(text.find("PID 4711") != std::string::npos);
}

TEST_CASE("of ranks that waited until the end it is said for whom") {
  std::vector<Recording> ranks = {Running(0, 12, kReduce, 50), Running(2, 12, kReduce, 50),
                                  Running(3, 12, kI, 40)};
  ranks[0].wait = {40, 3, 1, true, "data"};
  const Diagnosis diagnosis =
      FindCause(ByRank(ranks), ParseMpirunWords(kKilled), {137, false, false});
  CHECK(TextOf(diagnosis).find("rank 0: at step 12, REDUCE, waiting for rank 3 in a collective of "
                               "group 'data'") != std::string::npos);
  CHECK(TextOf(diagnosis).find("rank 2: at step 12, REDUCE\n") != std::string::npos);
}

TEST_CASE("of several failures the earliest own one is the cause") {
  const Diagnosis diagnosis =
      FindCause(ByRank({Failed(0, 5, 100, "recv: no progress for 60 s", recorder::Blame::kPeer),
                        Failed(1, 5, 300, "disk: no space"),
                        Failed(2, 5, 200, "loss is NaN at step 5"), Running(3, 5, kI, 400)}),
                {}, {4, false, false});
  CHECK((diagnosis.rank == 2 && diagnosis.own));
  CHECK(diagnosis.headline.find("loss is NaN") != std::string::npos);
  CHECK(diagnosis.next_action.find("learning_rate") != std::string::npos);
}

TEST_CASE("what every rank says is said once") {
  const std::string fault = "job.yaml:3: training.steps: 0 is out of range";
  const char* aborted = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n";
  const std::string text = TextOf(FindCause(
      ByRank({Failed(0, 0, 300, fault), Failed(1, 0, 200, fault), Failed(2, 0, 250, fault)}),
      ParseMpirunWords(aborted), {2, false, false}));
  CAPTURE(text);
  CHECK(text.find("rank 1 failed") == 0);
  CHECK(text.find(fault) == text.rfind(fault));
  CHECK(text.find("ranks 0, 2: at step 0, REDUCE, failed in the same way") != std::string::npos);
  CHECK(text.find("MPI_ABORT") == std::string::npos);
}

TEST_CASE("if all who spoke only waited, the silent rank is the cause") {
  const Diagnosis diagnosis =
      FindCause(ByRank({Failed(0, 8, 100, "REDUCE: no progress for 60 s", recorder::Blame::kPeer),
                        Failed(1, 8, 101, "REDUCE: no progress for 60 s", recorder::Blame::kPeer),
                        Running(2, 8, kReduce, 45), Running(3, 8, kI, 40)}),
                {}, {4, false, false});
  CHECK(diagnosis.rank == 3);
  CHECK(diagnosis.headline.find("rank 3 stopped moving at step 8, I of micro-batch 2") == 0);
  CHECK(diagnosis.headline.find("rank 0 gave up") != std::string::npos);
}

TEST_CASE("a rank that others wait for is the cause, not one that stood still longer") {
  // Rank 3 was stopped. Rank 0 waits for rank 1, which waits for rank 3 and gives up first.
  const auto recordings =
      ByRank({Running(0, 57, kReduce, 40),
              Failed(1, 57, 100,
                     "AllReduce #113 on group 'tied' (ranks 1,3): no progress for 2000 "
                     "ms, waiting for rank 3",
                     recorder::Blame::kPeer),
              Running(2, 57, kI, 41), Running(3, 57, kI, 45)});
  CHECK(FindCause(recordings, {}, {4, false, false}).rank == 3);
}

TEST_CASE("a chain of ranks that gave up on each other ends at the silent one") {
  const auto recordings = ByRank(
      {Failed(0, 5, 100, "Recv: no progress, waiting for rank 1", recorder::Blame::kPeer),
       Failed(1, 5, 101, "AllReduce: no progress, waiting for ranks 0,2", recorder::Blame::kPeer),
       Running(2, 5, kI, 60), Running(3, 5, kI, 40)});
  CHECK(FindCause(recordings, {}, {4, false, false}).rank == 2);
  // Who waits for each other in a circle leaves the word to the others.
  const auto circle =
      ByRank({Failed(0, 5, 100, "Recv: no progress, waiting for rank 1", recorder::Blame::kPeer),
              Failed(1, 5, 101, "Recv: no progress, waiting for rank 0", recorder::Blame::kPeer),
              Running(2, 5, kI, 60), Running(3, 5, kI, 40)});
  CHECK(FindCause(circle, {}, {4, false, false}).rank == 3);
}

// All end when the first gives up.
TEST_CASE("a chain goes on behind ranks that were about to give up") {
  Recording blocked = Running(3, 8, kI, 35);
  blocked.wait = {.since_ns = 36, .peer = 1, .awaited = 1};
  const Diagnosis diagnosis =
      FindCause(ByRank({Running(0, 8, kI, 36), Running(1, 8, kI, 40),
                        Failed(2, 8, 100, "AllGather: no progress for 2000 ms, waiting for rank 3",
                               recorder::Blame::kPeer),
                        blocked}),
                {}, {4, false, false});
  CHECK(diagnosis.rank == 1);
  CHECK(diagnosis.headline.find("rank 1 stopped moving at step 8") == 0);
}

TEST_CASE("a rank that dies before its recorder, an exit code, and nothing at all") {
  CHECK(FindCause({}, ParseMpirunWords(kKilled), {137, false, false}).headline ==
        "rank 3 died (signal 9, Killed) before it was up");
  const auto words = ParseMpirunWords("  Process name: [[4242,1],2]\n  Exit code:    17\n");
  const Diagnosis exited = FindCause(ByRank({Running(2, 1, kI, 5)}), words, {17, false, false});
  CHECK(exited.headline.find("rank 2 exited with code 17 at step 1") == 0);
  CHECK(FindCause({}, {}, {9, false, false}).headline == "no rank came up (exit code 9)");
}

TEST_CASE("mpirun that was killed is named, when no rank can be") {
  const auto ranks = ByRank({Running(0, 2, kI, 5), Running(1, 2, kI, 5)});
  CHECK(FindCause(ranks, {}, {137, false, false}).headline ==
        "mpirun or its guard died (signal 9, Killed)");
  CHECK(FindCause(ranks, {}, {137, false, false, /*by_srun=*/true}).headline ==
        "srun or its guard died (signal 9, Killed)");
  CHECK(FindCause(ranks, {}, {137, true, true}).signal == 0);
  CHECK(FindCause(ranks, {}, {9, false, false}).headline.find("exit code 9") != std::string::npos);
}

TEST_CASE("a signal that was our own kill is no cause") {
  const Diagnosis diagnosis =
      FindCause(ByRank({Running(3, 12, kI, 40)}), ParseMpirunWords(kKilled), {137, true, true});
  CHECK(diagnosis.signal == 0);
}

TEST_CASE("a thousand ranks give a few lines") {
  std::vector<Recording> list{Failed(0, 1, 10, "broken")};
  for (int rank = 1; rank < 1000; ++rank) list.push_back(Running(rank, rank % 50, kI, 5));
  CHECK(TextOf(FindCause(ByRank(list), {}, {4, false, false})).size() < 2000);
}

// Of a run whose mpirun said `log` and none of whose ranks came up.
Diagnosis WithoutRanks(const std::string& log) {
  std::string folder = std::filesystem::temp_directory_path() / "diagnosis-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::filesystem::create_directory(folder + "/logs");
  std::ofstream(folder + "/logs/mpirun.log", std::ios::binary) << log;
  const Diagnosis diagnosis = Diagnose(folder, {255, false, false});
  std::filesystem::remove_all(folder);
  return diagnosis;
}

constexpr const char* kOrte =
    "--------------------------------------------------------------------------\n"
    "ORTE was unable to reliably start one or more daemons.\n"
    "This usually is caused by:\n\n"
    "* not finding the required libraries and/or binaries on\n"
    "  one or more nodes. Please check your PATH and LD_LIBRARY_PATH\n"
    "  settings, or configure OMPI with --enable-orterun-prefix-by-default\n"
    "* lack of authority to execute on one or more specified nodes.\n"
    "  Please verify your allocation and authorities.\n"
    "* an inability to create a connection back to mpirun\n"
    "This is usually an internal programming error that should be\n"
    "reported to the developers.\n";

TEST_CASE("of a node that ssh does not get to what ssh said is shown and its name") {
  const std::pair<const char*, const char*> cases[] = {
      {"ssh: Could not resolve hostname n3: Name or service not known\r\n", "n3"},
      {"ssh: connect to host n4.lab port 22: Connection refused\r\n", "n4.lab"},
      {"ada@n5: Permission denied (publickey,password).\r\n", "n5"},
      {"Permission denied, please try again.\n", "NODE"},
      {"No ED25519 host key is known for n6 and you have requested strict checking.\n"
       "Host key verification failed.\n",
       "n6"},
      {"Host key verification failed.\n", "NODE"},
  };
  for (const auto& [said, node] : cases) {
    const std::string words(said);
    const Diagnosis diagnosis = WithoutRanks("mpirun begins\n" + words + kOrte);
    const std::string text = TextOf(diagnosis);
    CAPTURE(text);
    CHECK(diagnosis.headline == "no rank came up (exit code 255)");
    CHECK(text.find("log: " + words.substr(0, words.find_first_of("\r\n")) + "\n") !=
          std::string::npos);
    CHECK(text.find("internal programming error") == std::string::npos);
    CHECK(diagnosis.next_action.find(std::string("check `ssh ") + node + " true`") == 0);
  }
}

TEST_CASE("where no rank came up the first words of mpirun are shown and not its last") {
  const Diagnosis other =
      WithoutRanks(std::string("bash: line 1: orted: command not found\n") + kOrte);
  REQUIRE(other.evidence.size() == 8);
  CHECK(other.evidence[0] == "log: bash: line 1: orted: command not found");
  CHECK(TextOf(other).find("internal programming error") == std::string::npos);
  // A file of the user's that may not be read is nothing of ssh's.
  const Diagnosis file = WithoutRanks("/opt/trireme-worker: Permission denied\n");
  CHECK(file.next_action.find("ssh") == std::string::npos);
  CHECK(WithoutRanks("").evidence.empty());
}

TEST_CASE("advice goes by words, not by parts of names") {
  const auto advice = [](const std::string& failure) {
    return FindCause(ByRank({Failed(0, 3, 60, failure)}), {}, {1, false, false}).next_action;
  };
  const std::string plain = advice("the weights do not fit");
  CHECK(advice("/home/fernando/run: permission denied") == plain);
  CHECK(advice("/data/disk2/nan/inf: is a folder") == plain);
  CHECK(advice("the financial year is diskless") == plain);
  CHECK(advice("NaN or Inf in the gradient of h.0.attn").find("learning_rate") !=
        std::string::npos);
  CHECK(advice("step 3: loss is nan.").find("learning_rate") != std::string::npos);
  CHECK(advice("/x/y: No space left on device").find("free disk space") != std::string::npos);
  CHECK(advice("/x: the disk is full").find("free disk space") != std::string::npos);
  CHECK(advice("offload: the disk of /x has not answered for 60 s").find("--gone") !=
        std::string::npos);
}

}  // namespace
}  // namespace trireme::launcher
