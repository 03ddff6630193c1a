// An attempt stands still before each of its calls, until a newer one has begun and saved: then it
// goes on, and nothing that anybody reads is changed by that.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <map>
#include <system_error>

#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "checkpoint/client/writer_claim.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/power_loss/disk_log.h"
#include "tests/power_loss/empty_folder.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

// All that has a name that a person or a program takes for a checkpoint, with its manifest.
std::map<std::string, std::string> Shown(const std::string& root) {
  std::map<std::string, std::string> shown;
  for (const std::string& name : NamesIn(root)) {
    if (!name.starts_with("step-")) continue;
    shown[name] = ReadAll(root + "/" + name + "/" + std::string(kManifestName));
  }
  return shown;
}

absl::Status SaveAndPrune(const std::string& root, uint64_t step, uint64_t salt, Epoch epoch) {
  const absl::Status saved = Save(root, step, ThreeRanks(salt), epoch);
  if (!saved.ok()) return saved;
  return CheckpointWriter::Prune(root, {.keep = 1, .newest = step, .epoch = epoch});
}

// What attempts before that one have left: as many as FillDisk(2) asks for, and more, so that what
// this one leaves is needed for room, or not, by its place among them.
void LeaveOlder(const std::string& root, Epoch old) {
  const Epoch older{static_cast<uint64_t>(old) - (uint64_t{1} << 32)};
  for (const uint64_t step : {5, 99, 100}) fs::create_directory(PartialFolder(root, step, older));
}

// `prepare` makes a folder and gives the old attempt's epoch, which `late` then works with.
struct Scene {
  std::function<Epoch(const std::string& root)> prepare;
  std::function<absl::Status(const std::string& root, Epoch epoch)> late;
  // What the newer one does, which goes on from `begun`; `shown` is what it found.
  std::function<void(const std::string& root, uint64_t begun, WriterClaim& claim)> newer;
  // After the late one's end.
  std::function<void(const std::string& root, WriterClaim& claim)> after = nullptr;
  int full_by = 0;  // names, for the newer one's beginning
};

// Gives how many calls the late one makes.
int StandStillBeforeEach(const Scene& scene) {
  for (int call = 1;; ++call) {
    INFO("before call " << call);
    const power_loss::EmptyFolder root;
    const Epoch old = scene.prepare(root.path());
    const pid_t late = fork();
    REQUIRE(late >= 0);
    if (late == 0) {
      power_loss::StandStillBefore(call);
      _exit(scene.late(root.path(), old).ok() ? 0 : 1);
    }
    int how = 0;
    REQUIRE(waitpid(late, &how, WUNTRACED) == late);
    if (!WIFSTOPPED(how)) {
      CHECK((WIFEXITED(how) && WEXITSTATUS(how) == 0));
      return call - 1;
    }
    power_loss::FillDisk(scene.full_by);
    auto claim = WriterClaim::Take(root.path());
    power_loss::FillDisk(0);
    CHECK(claim.ok());
    const auto newest = FindNewestIntact(root.path());
    CHECK(newest.ok());
    uint64_t begun = 0;
    if (newest.ok()) ParseStepFolderName(fs::path(*newest).filename().string(), &begun);
    const auto found = Shown(root.path());
    if (claim.ok()) scene.newer(root.path(), begun, *claim);
    const auto shown = Shown(root.path());
    for (const auto& [name, manifest] : found) {
      CHECK((shown.contains(name) || shown.contains(name + ".damaged")));
    }
    kill(late, SIGCONT);
    REQUIRE(waitpid(late, &how, 0) == late);
    REQUIRE(WIFEXITED(how));
    CHECK(Shown(root.path()) == shown);
    if (claim.ok() && scene.after) scene.after(root.path(), *claim);
    for (const auto& [name, manifest] : shown) {
      CHECK((name.ends_with(".damaged") || Verify(root.path() + "/" + name).ok()));
    }
    const Epoch now = claim.ok() ? claim->epoch() : Epoch::kNone;
    CHECK(SaveAndPrune(root.path(), 50, 50, now).ok());
    CHECK(NewestHolds(root.path(), 50, 50));
  }
}

Epoch TwoSaves(const std::string& root) {
  REQUIRE(WriterClaim::Take(root).ok());
  const Epoch old = WriterClaim::Take(root)->epoch();
  for (uint64_t step : {10, 20}) REQUIRE(Save(root, step, ThreeRanks(step), old).ok());
  LeaveOlder(root, old);
  return old;
}

TEST_CASE(
    "stalled: a save that a newer attempt overtakes is published before it begins, or never") {
  const int full_by = GENERATE(0, 2);
  CAPTURE(full_by);
  int in_place = 0, taken_away = 0;
  const int calls = StandStillBeforeEach(
      {.prepare = TwoSaves,
       .late = [](const std::string& root, Epoch old) { return SaveAndPrune(root, 30, 30, old); },
       .newer =
           [&](const std::string& root, uint64_t begun, WriterClaim& claim) {
             CHECK((begun == 20 || begun == 30));
             ++(begun == 30 ? in_place : taken_away);
             CHECK(claim.BeginAfter(begun).value().empty());
             // The same step by another attempt, where that is to come yet.
             REQUIRE(Save(root, begun + 10, ThreeRanks(99), claim.epoch()).ok());
             CHECK(NewestHolds(root, begun + 10, 99));
           },
       .full_by = full_by});
  CHECK(in_place > 5);
  CHECK(taken_away > 20);
  CHECK(calls == in_place + taken_away);
}

TEST_CASE("stalled: a damaged checkpoint is set aside by a newer attempt, and its good one stays") {
  const int full_by = GENERATE(0, 2);
  CAPTURE(full_by);
  const int calls = StandStillBeforeEach(
      {.prepare =
           [](const std::string& root) {
             const Epoch old = TwoSaves(root);
             FlipByte(root + "/step-00000020/rank-001.safetensors", 90);
             return old;
           },
       .late = [](const std::string& root,
                  Epoch old) { return SetAsideDamaged(root, 20, old).status(); },
       .newer =
           [](const std::string& root, uint64_t begun, WriterClaim& claim) {
             CHECK(begun == 10);
             REQUIRE(claim.BeginAfter(10, DamagedAfter(root, 10)).ok());
             REQUIRE(Save(root, 20, ThreeRanks(99), claim.epoch()).ok());
             CHECK(NewestHolds(root, 20, 99));
           },
       .full_by = full_by});
  CHECK(calls > 2);
}

// As behind a mount that gives errors to that node alone.
TEST_CASE("stalled: what is damaged to the older attempt alone is set aside before, or never") {
  const int full_by = GENERATE(0, 2);
  CAPTURE(full_by);
  int before = 0, never = 0;
  const int calls = StandStillBeforeEach(
      {.prepare = TwoSaves,
       .late = [](const std::string& root,
                  Epoch old) { return SetAsideDamaged(root, 20, old).status(); },
       .newer =
           [&](const std::string& root, uint64_t begun, WriterClaim& claim) {
             CHECK((begun == 10 || begun == 20));
             ++(begun == 10 ? before : never);
             CHECK(fs::exists(root + "/step-00000020.damaged") == (begun == 10));
             CHECK(claim.BeginAfter(begun).value().empty());
             REQUIRE(Save(root, begun + 10, ThreeRanks(99), claim.epoch()).ok());
           },
       .full_by = full_by});
  CHECK(before > 2);
  CHECK(never > 2);
  CHECK(calls == before + never);
}

bool IsHidden(const std::string& name) {
  return name.ends_with(".removed") || name.ends_with(".partial");
}

// A process that stops before its call number `call`, or has ended with 0 or 1 when it had fewer.
class Attempt {
 public:
  Attempt(int call, const std::function<absl::Status()>& work) : process_(fork()) {
    REQUIRE(process_ >= 0);
    if (process_ == 0) {
      power_loss::StandStillBefore(call);
      _exit(work().ok() ? 0 : 1);
    }
    REQUIRE(waitpid(process_, &how_, WUNTRACED) == process_);
  }
  bool stands() const { return WIFSTOPPED(how_); }
  // True: it has done its work.
  bool GoOn() {
    if (stands()) {
      kill(process_, SIGCONT);
      REQUIRE(waitpid(process_, &how_, 0) == process_);
    }
    REQUIRE(WIFEXITED(how_));
    return WEXITSTATUS(how_) == 0;
  }

 private:
  pid_t process_;
  int how_ = 0;
};

// What the first of three is about to publish from is gone when the third has begun, also where the
// second takes away the folder into which the third is moving it.
TEST_CASE("stalled: an attempt begins also while an older one still takes away") {
  int begun = 0;
  bool second_stands = true;
  for (int call = 1; second_stands; ++call) {
    bool third_stands = true;
    for (int newer_call = 1; third_stands; ++newer_call) {
      INFO("before call " << call << " of the second and call " << newer_call << " of the third");
      const power_loss::EmptyFolder root;
      const Epoch first = WriterClaim::Take(root.path())->epoch();
      const Epoch second = WriterClaim::Take(root.path())->epoch();
      for (const uint64_t step : {10, 20}) {
        fs::create_directory(PartialFolder(root.path(), step, first));
      }
      Attempt older(call, [&] { return TakeAway(root.path(), second, IsHidden); });
      Attempt newer(newer_call, [&] { return WriterClaim::Take(root.path()).status(); });
      second_stands = older.stands();
      third_stands = newer.stands();
      older.GoOn();
      CHECK(newer.GoOn());
      for (const std::string& name : NamesIn(root.path())) CHECK_FALSE(IsHidden(name));
      ++begun;
    }
  }
  CHECK(begun > 100);
}

// As in the middle of its own beginning, or of its end.
TEST_CASE("stalled: an attempt that makes room for its beginning takes nothing of a newer one") {
  const int full_by = GENERATE(0, 1);
  CAPTURE(full_by);
  const int calls = StandStillBeforeEach(
      {.prepare = TwoSaves,
       .late =
           [](const std::string& root, Epoch old) {
             power_loss::FillDisk(2);
             const absl::Status taken = TakeAway(root, old, IsHidden);
             std::error_code ignored;  // of what the newer one removes meanwhile
             if (taken.ok()) fs::remove_all(RemovedFolder(root, old), ignored);
             return taken;
           },
       .newer =
           [](const std::string& root, uint64_t begun, WriterClaim& claim) {
             CHECK(begun == 20);
             const auto folder = CheckpointWriter::Prepare(root, 30, claim.epoch());
             REQUIRE(folder.ok());
             const auto states = ThreeRanks(30);
             for (int rank = 0; rank < 3; ++rank) {
               REQUIRE(CheckpointWriter::WriteRank(*folder, rank, states[rank].shards()).ok());
             }
           },
       .after =
           [](const std::string& root, WriterClaim& claim) {
             CHECK(CheckpointWriter::Commit(root, 30, InfoOf(30, 3), claim.epoch()).ok());
             CHECK(NewestHolds(root, 30, 30));
           },
       .full_by = full_by});
  CHECK(calls > 10);
}

TEST_CASE("a run begins on a disk that is full to the last block with what others have left") {
  for (const char* left : {"partial", "removed", "both", "of no claim"}) {
    INFO(left);
    const power_loss::EmptyFolder root;
    const Epoch old = WriterClaim::Take(root.path())->epoch();
    REQUIRE(Save(root.path(), 10, ThreeRanks(10), old).ok());
    const std::string partial = PartialFolder(root.path(), 20, *left == 'o' ? Epoch::kNone : old);
    if (*left != 'r') {
      fs::create_directory(partial);
      WriteAll(partial + "/rank-001.safetensors", "half");
    }
    if (*left != 'p' && *left != 'o') {
      // What its removal had come to.
      fs::create_directories(RemovedFolder(root.path(), old) + "/step-00000003");
      WriteAll(RemovedFolder(root.path(), old) + "/step-00000003/rank-001.safetensors", "old");
    }
    power_loss::FillDisk(2);
    auto claim = WriterClaim::Take(root.path());
    INFO(claim.status().ToString());
    REQUIRE(claim.ok());
    CHECK(NamesIn(root.path()) == std::vector<std::string>{".lock", "step-00000010"});
    power_loss::FillDisk(1);
    // There is nothing to make room of.
    claim = absl::AbortedError("ended");
    claim = WriterClaim::Take(root.path());
    power_loss::FillDisk(0);
    CHECK(absl::IsUnavailable(claim.status()));
    CHECK(claim.status().message().find("cannot be made") != std::string::npos);
    CHECK(NewestHolds(root.path(), 10, 10));
  }
}

}  // namespace

TEST_CASE("what cannot be pruned, moved or emptied, holds up nothing else") {
  const power_loss::EmptyFolder root;
  auto claim = WriterClaim::Take(root.path());
  REQUIRE(claim.ok());
  const Epoch now = claim->epoch();
  for (uint64_t step : {10, 20, 30, 40}) {
    REQUIRE(Save(root.path(), step, ThreeRanks(step), now).ok());
  }
  const auto prune = [&](uint64_t newest) {
    return CheckpointWriter::Prune(root.path(), {.keep = 1, .newest = newest, .epoch = now});
  };
  const auto shows = [&] {
    std::vector<std::string> names;
    for (const auto& [name, manifest] : Shown(root.path())) names.push_back(name);
    return names;
  };
  using Names = std::vector<std::string>;
  for (const char* kept : {"/step-00000010", "/step-00000020", "/step-00000030"}) {
    power_loss::RefuseNames(kept);
    const absl::Status pruned = prune(40);
    power_loss::RefuseNames("");
    CHECK(pruned.message().find(kept) != std::string::npos);
    CHECK(shows() == Names{kept + 1, "step-00000040"});
    fs::rename(root.path() + kept, root.path() + "/step-00000010");
    for (uint64_t step : {20, 30}) REQUIRE(Save(root.path(), step, ThreeRanks(step), now).ok());
  }
  // Somebody reads a file of what was moved, and keeps its folder.
  power_loss::RefuseNames("rank-001.safetensors");
  CHECK_FALSE(prune(30).ok());
  CHECK(shows() == Names{"step-00000030", "step-00000040"});
  CHECK_FALSE(prune(40).ok());
  power_loss::RefuseNames("");
  CHECK(shows() == Names{"step-00000040"});
  CHECK(prune(40).ok());
  CHECK_FALSE(fs::exists(RemovedFolder(root.path(), now)));
  // Nor does it keep the next attempt from its beginning.
  REQUIRE(Save(root.path(), 50, ThreeRanks(50), now).ok());
  power_loss::RefuseNames("rank-001.safetensors");
  CHECK_FALSE(prune(50).ok());
  claim = absl::AbortedError("ended");
  claim = WriterClaim::Take(root.path());
  REQUIRE(claim.ok());
  REQUIRE(Save(root.path(), 60, ThreeRanks(60), claim->epoch()).ok());
  CHECK_FALSE(
      CheckpointWriter::Prune(root.path(), {.keep = 1, .newest = 60, .epoch = claim->epoch()})
          .ok());
  power_loss::RefuseNames("");
  CHECK(shows() == Names{"step-00000060"});
}
}  // namespace trireme::checkpoint
