// A run folder that does not answer: what is held up by it, what goes on, and what is ended all the
// same. The folder hangs by a launch that does not come back from its look at it, and, where this
// process may mount one, by a file system whose server is gone.
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "coordinator/keeper/launch.h"
#include "runtime/base/monotonic.h"
#include "runtime/run_claim/run_claim.h"
#include "tests/coordinator/keeper/keeper_bench.h"
#include "tests/coordinator/run_files/hung_mount.h"
#include "tests/skip.h"

namespace trireme::keeper {
namespace {

using std::chrono::milliseconds;

constexpr const char kHungRuns[] =
    "echo $attempt >> $run/starts; trap '' TERM; while :; do sleep 600; done\n";

// A disk that answers only while it is open.
class Gate {
 public:
  void Close() {
    const absl::MutexLock lock(&mutex_);
    open_ = false;
  }
  void Open() {
    const absl::MutexLock lock(&mutex_);
    open_ = true;
  }
  void Pass() {
    const absl::MutexLock lock(&mutex_);
    ++inside_;
    mutex_.Await(absl::Condition(&open_));
    --inside_;
  }
  bool HoldsOne() {
    const absl::MutexLock lock(&mutex_);
    return inside_ > 0;
  }

 private:
  absl::Mutex mutex_;
  bool open_ = true;
  int inside_ = 0;
};

struct Disk {
  Gate looks, starts, forks, guards;
  std::atomic<int> launches{0};
};

class DiskLaunch final : public Launch {
 public:
  DiskLaunch(std::unique_ptr<Launch> real, std::shared_ptr<Disk> disk,
             std::shared_ptr<KeeperOptions> own)
      : own_(std::move(own)), real_(std::move(real)), disk_(std::move(disk)) {}
  Seen Look(int64_t now_ns) override {
    disk_->looks.Pass();
    return real_->Look(now_ns);
  }
  bool Ready() override {
    disk_->starts.Pass();
    return real_->Ready();
  }
  absl::Status Start(const std::function<bool()>& called_off) override {
    ++disk_->launches;
    return real_->Start([this, &called_off] {
      disk_->forks.Pass();
      const bool off = called_off();
      disk_->guards.Pass();  // between the last question and the guard
      return off;
    });
  }
  void AskToStop(int64_t now_ns) override { real_->AskToStop(now_ns); }
  void Kill(int64_t now_ns) override { real_->Kill(now_ns); }
  absl::Status Seal() override { return real_->Seal(); }
  bool SweptClean() override { return real_->SweptClean(); }
  bool RunnerGone() override { return real_->RunnerGone(); }
  void CleanUp() override { real_->CleanUp(); }

 private:
  const std::shared_ptr<KeeperOptions> own_;  // outlives a turn that hangs
  const std::unique_ptr<Launch> real_;
  const std::shared_ptr<Disk> disk_;
};

// Job 7 is on `disk`, job 8 beside it.
class HungBench : public KeeperBench {
 public:
  explicit HungBench(const std::string& script) : KeeperBench(script) {
    options.turn_wait = milliseconds(20);
    options.stalled_after = milliseconds(400);
    std::filesystem::create_directories(root + "/other");
    options.make_launch = [disk = disk, own = std::make_shared<KeeperOptions>(options)](
                              const AttemptRecord& record, const AttemptFolder& folder) {
      auto real = MakeMpirunLaunch(*own, record, folder);
      if (record.desired.job_id() != 7) return real;
      return std::unique_ptr<Launch>(std::make_unique<DiskLaunch>(std::move(real), disk, own));
    };
  }
  v1::DesiredAttempt Other() const {
    v1::DesiredAttempt other = Attempt(1);
    std::filesystem::create_directories(root + "/other");
    other.set_job_id(8);
    other.mutable_launch()->set_run_folder(root + "/other");
    return other;
  }
  // Until the ranks of job 7 run, and then its disk answers no more.
  void RunAndHang(Keeper& keeper) const {
    Await(keeper, 1, [&](const auto&) {
      keeper.ReportTaken(base::BoottimeNs());
      return Lines("starts") == 1;
    });
    disk->looks.Close();
    Await(keeper, 1, [&](const auto&) { return disk->looks.HoldsOne(); });
  }
  v1::AttemptReport AwaitDeath(Keeper& keeper) const {
    return Await(keeper, 1, [&](const v1::AttemptReport& report) {
      REQUIRE(report.phase() != v1::ATTEMPT_ENDED);  // nobody knows with what
      return Living().empty() && report.stalled().find("have been killed") != std::string::npos;
    });
  }

  const std::shared_ptr<Disk> disk = std::make_shared<Disk>();
};

TEST_CASE("hung folder: other attempts start, run and end beside it") {
  HungBench bench(kHungRuns);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.RunAndHang(*keeper);
  keeper->SetDesired(bench.Desired({bench.Attempt(1), bench.Other()}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("starts") == 2; });
  const v1::AttemptReport hung = bench.Await(
      *keeper, 1, [](const v1::AttemptReport& report) { return !report.stalled().empty(); });
  CHECK(hung.phase() == v1::ATTEMPT_STARTING);
  CHECK_THAT(hung.stalled(), Catch::Contains("its run folder " + bench.run + " has not answered") &&
                                 Catch::Contains("node n1"));
  // It ends in order, by its guard.
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.job_id = 8;
  bench.Await(*keeper, 1, [](const auto& report) { return report.attempt() == 0; });
  bench.job_id = 7;
  CHECK(bench.disk->looks.HoldsOne());
  CHECK(bench.Living().size() == 2);  // the shell and what it waits for: nobody wants it ended
  bench.disk->looks.Open();
  bench.Await(*keeper, 1, [](const auto& report) { return report.stalled().empty(); });
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_KILL)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 137);
  bench.CheckNothingLeft(1);
}

TEST_CASE("hung folder: who is cut off there is ended without it, and told when it answers") {
  HungBench bench(kHungRuns);
  v1::DesiredAttempt attempt = bench.Attempt(1);
  attempt.set_end_after_seconds(1);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  bench.RunAndHang(*keeper);
  bench.AwaitDeath(*keeper);
  CHECK(bench.disk->looks.HoldsOne());
  bench.disk->looks.Open();
  CHECK_THAT(bench.AwaitEnd(*keeper, 1).failure().headline(), Catch::Contains("was cut off"));
  bench.CheckNothingLeft(1);
}

TEST_CASE("hung folder: a kill, or a stop whose grace is over, reaches the ranks without it") {
  HungBench bench(kHungRuns);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.RunAndHang(*keeper);
  const auto [how, grace] =
      GENERATE(std::pair(v1::ATTEMPT_KILL, 0.0), std::pair(v1::ATTEMPT_STOP, 0.2));
  keeper->SetDesired(bench.Desired({bench.Attempt(1, how, grace)}));
  bench.AwaitDeath(*keeper);
  CHECK(bench.disk->looks.HoldsOne());
  bench.disk->looks.Open();
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() != 0);
  bench.CheckNothingLeft(1);
}

TEST_CASE("hung folder: a stop within its grace kills nobody") {
  HungBench bench(kHungRuns);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.RunAndHang(*keeper);
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_STOP, 600)}));
  const int64_t until = base::MonotonicNs() + 2 * base::kNsPerSecond;
  while (base::MonotonicNs() < until) {
    keeper->Poll();
    std::this_thread::sleep_for(milliseconds(20));
  }
  CHECK(bench.Living().size() == 2);
  bench.disk->looks.Open();
}

TEST_CASE("hung folder: a start that it held up is not carried on when it is called off") {
  HungBench bench(kHungRuns);
  bench.disk->starts.Close();
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.disk->starts.HoldsOne(); });
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_KILL)}));
  bench.disk->starts.Open();
  CHECK_THAT(bench.AwaitEnd(*keeper, 1).failure().headline(),
             Catch::Contains("killed before it began"));
  CHECK(bench.disk->launches == 0);
}

TEST_CASE("hung folder: a start that it held up until the fork is called off there") {
  HungBench bench(kHungRuns);
  bench.disk->forks.Close();
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.disk->forks.HoldsOne(); });
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_KILL)}));
  bench.disk->forks.Open();
  CHECK_THAT(bench.AwaitEnd(*keeper, 1).failure().headline(),
             Catch::Contains("killed before it began"));
  CHECK(bench.disk->launches == 1);
  CHECK(Slurp(bench.Folder(1) + "/guard.json").empty());  // a seal
}

TEST_CASE("hung folder: a guard that it held up starts nothing where a newer attempt counts") {
  HungBench bench(kHungRuns);
  bench.disk->guards.Close();
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return bench.disk->guards.HoldsOne(); });
  REQUIRE(run_claim::WriteRunClaim(bench.run, {7, 2, ""}).ok());
  bench.disk->guards.Open();
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == 137);
  CHECK_FALSE(Slurp(bench.Folder(1) + "/guard.json").empty());
  CHECK(bench.Lines("starts") == 0);
  bench.CheckNothingLeft(1);
}

TEST_CASE("hung folder: what ranks say of their steps with other nodes is word of these") {
  HungBench bench("");
  v1::DesiredAttempt attempt = bench.Attempt(1);
  attempt.set_end_after_seconds(1);
  // Another node launches it, so nothing is begun here.
  v1::NodeAllocation* part = attempt.mutable_launch()->add_allocation();
  *part = attempt.launch().allocation(0);
  attempt.mutable_launch()->mutable_allocation(0)->set_node("n0");
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  const int64_t until = base::MonotonicNs() + 3 * base::kNsPerSecond;
  for (uint64_t step = 1; base::MonotonicNs() < until; ++step) {
    keeper->StepsSaid({{7, 1, step, base::BoottimeNs()}});
    REQUIRE(keeper->Poll().attempts(0).phase() != v1::ATTEMPT_ENDED);
    std::this_thread::sleep_for(milliseconds(20));
  }
  uint64_t others = 1'000'000;
  // The same steps again are no word of anybody, nor are those of another store's job.
  bench.Await(*keeper, 1, [&](const v1::AttemptReport& report) {
    const int64_t now_ns = base::BoottimeNs();
    keeper->StepsSaid({{7, 1, 3, now_ns}, {8, 1, 1'000'000, now_ns}});
    keeper->StepsSaid({{7, 1, ++others, now_ns, "of another"}});
    return report.phase() == v1::ATTEMPT_ENDED;
  });
}

TEST_CASE("hung folder: a keeper ends without it, and the next one adopts") {
  HungBench bench(kHungRuns);
  KeeperOptions plain = bench.options;
  plain.make_launch = nullptr;
  const bool starts = GENERATE(false, true);
  {
    const auto keeper = bench.Open();
    if (starts) bench.disk->starts.Close();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    if (!starts) bench.RunAndHang(*keeper);
    if (starts) bench.Await(*keeper, 1, [&](const auto&) { return bench.disk->starts.HoldsOne(); });
  }
  CHECK((bench.disk->looks.HoldsOne() || bench.disk->starts.HoldsOne()));
  bench.options = plain;
  const auto keeper = bench.Open();
  CHECK(keeper->Poll().attempts_size() == 1);
  keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_KILL)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 137);
  // What it left behind comes back, and does nothing.
  bench.disk->looks.Open();
  bench.disk->starts.Open();
  for (int i = 0; i < 500 && (bench.disk->looks.HoldsOne() || bench.disk->starts.HoldsOne()); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  std::this_thread::sleep_for(milliseconds(50));
  CHECK(bench.disk->launches == (starts ? 0 : 1));
  bench.CheckNothingLeft(1);
}

TEST_CASE("hung folder: what a keeper adopts has no phase before the first look at it") {
  HungBench bench(kHungRuns);
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    bench.RunAndHang(*keeper);
  }
  const auto keeper = bench.Open();
  const v1::AttemptReport hung =
      bench.Await(*keeper, 1, [](const auto& report) { return !report.stalled().empty(); });
  CHECK(hung.phase() == v1::ATTEMPT_PHASE_UNSPECIFIED);
  CHECK(hung.attempt() == 1);
  CHECK(hung.ranks().empty());
  bench.disk->looks.Open();
  bench.Await(*keeper, 1,
              [](const auto& report) { return report.phase() == v1::ATTEMPT_STARTING; });
}

TEST_CASE("hung folder: a file system whose server is gone") {
  if (!coordinator::MayHang()) {
    TRIREME_SKIP("not here: root with /dev/fuse, who may mount a file system that hangs");
  }
  HungBench bench("echo $attempt >> $run/starts; trap '' TERM; cd /; sleep 600\n");
  bench.options.make_launch = nullptr;
  v1::DesiredAttempt attempt = bench.Attempt(1);
  attempt.set_end_after_seconds(1);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  bench.Await(*keeper, 1, [&](const auto&) {
    keeper->ReportTaken(base::BoottimeNs());
    return bench.Lines("starts") == 1;
  });
  {
    const coordinator::HungMount hung(bench.run);
    REQUIRE(hung.hangs());
    const v1::AttemptReport dead = bench.AwaitDeath(*keeper);
    CHECK_THAT(dead.stalled(), Catch::Contains("(fuse server:/gone)"));
    v1::DesiredAttempt other = bench.Other();
    keeper->SetDesired(bench.Desired({attempt, other}));
    bench.job_id = 8;
    bench.Await(*keeper, 1, [&](const auto&) {
      keeper->ReportTaken(base::BoottimeNs());
      return std::filesystem::exists(bench.root + "/other/attempts/1/guard.json");
    });
    bench.job_id = 7;
  }
  CHECK_THAT(bench.AwaitEnd(*keeper, 1).failure().headline(), Catch::Contains("was cut off"));
  keeper->SetDesired(bench.Desired({}));
  bench.job_id = 8;
  bench.Await(*keeper, 1, [](const auto& report) { return report.attempt() == 0; });
  bench.job_id = 7;
}

TEST_CASE("hung folder: where ranks dial is there before their disk is looked at") {
  if (!coordinator::MayHang()) {
    TRIREME_SKIP("not here: root with /dev/fuse, who may mount a file system that hangs");
  }
  HungBench bench("");
  bench.options.make_launch = nullptr;
  v1::DesiredAttempt attempt = bench.Attempt(1);
  v1::NodeAllocation* part = attempt.mutable_launch()->add_allocation();
  *part = attempt.launch().allocation(0);
  attempt.mutable_launch()->mutable_allocation(0)->set_node("n0");  // launches it
  const std::string session = AttemptFolder(attempt).temporary_folders().session;
  const coordinator::HungMount hung(bench.run);
  REQUIRE(hung.hangs());
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  bench.Await(*keeper, 1, [&](const auto&) { return std::filesystem::exists(session); });
  // The turn that hangs comes back at the end, and makes no folder for what is not wanted.
  attempt.set_desired_state(v1::ATTEMPT_KILL);
  keeper->SetDesired(bench.Desired({attempt}));
  std::filesystem::remove_all(session);
  std::filesystem::remove_all(AttemptFolder(attempt).temporary_folders().shared_memory);
}

}  // namespace
}  // namespace trireme::keeper
