#include "tests/coordinator/keeper/keeper_bench.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/random_hex.h"

namespace trireme::keeper {
namespace fs = std::filesystem;

namespace {

constexpr int kSteps = 6000;
constexpr auto kStep = std::chrono::milliseconds(5);

}  // namespace

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

KeeperBench::KeeperBench(const std::string& script) : path_before_(std::getenv("PATH")) {
  char path[] = "/tmp/keeper_test_XXXXXX";
  TRIREME_CHECK(mkdtemp(path) != nullptr);
  root = path;
  run = root + "/run";
  key = base::RandomHex(16);
  fs::create_directories(run);
  options = {"n1", root + "/state", root + "/worker", {"own argument"}};
  options.turn_wait = std::chrono::seconds(30);  // one Poll does all that follows
  // A shell cannot trap what it was born to ignore.
  std::ofstream(options.worker) << "#!/usr/bin/env -S --default-signal=USR1 /bin/sh\n"
                                   "PATH=/usr/bin:/bin; run='"
                                << run << "'; attempt=${TRIREME_ATTEMPT#*-}\n"
                                << script;
  chmod(options.worker.c_str(), 0755);
  setenv("PATH", "/nonexistent", 1);
}

std::unique_ptr<KeeperBench> KeeperBench::Recorded(uint32_t ranks) {
  auto bench = std::make_unique<KeeperBench>("");
  setenv("PATH", bench->path_before_.c_str(), 1);
  bench->ranks = ranks;
  bench->options.worker = fs::read_symlink("/proc/self/exe").parent_path() / "keeper_rank";
  return bench;
}

KeeperBench::~KeeperBench() {
  setenv("PATH", path_before_.c_str(), 1);
  for (const int pid : Living()) kill(pid, SIGKILL);
  for (uint32_t attempt = 1; attempt < 10; ++attempt) {
    launcher::SendSignal(Guard(attempt), SIGKILL);
    AttemptFolder(Attempt(attempt)).RemoveTemporaryFolders();
  }
  std::error_code ignored;
  fs::remove_all(root, ignored);
}

std::unique_ptr<Keeper> KeeperBench::Open() const {
  auto keeper = Keeper::Open(options);
  REQUIRE(keeper.ok());
  return std::move(*keeper);
}

v1::DesiredAttempt KeeperBench::Attempt(uint32_t attempt, v1::AttemptDesiredState desired_state,
                                        double grace_seconds) const {
  v1::DesiredAttempt desired;
  desired.set_job_id(job_id);
  desired.set_attempt(attempt);
  desired.set_desired_state(desired_state);
  desired.set_grace_seconds(grace_seconds);
  desired.mutable_launch()->set_run_folder(run);
  desired.mutable_launch()->set_key(key);
  desired.mutable_launch()->set_threads_per_rank(1);
  v1::NodeAllocation* part = desired.mutable_launch()->add_allocation();
  part->set_node("n1");
  part->set_ranks(ranks);
  return desired;
}

v1::DesiredAttempts KeeperBench::Desired(const std::vector<v1::DesiredAttempt>& attempts) const {
  v1::DesiredAttempts desired;
  desired.set_revision(42);
  for (const auto& attempt : attempts) *desired.add_attempts() = attempt;
  return desired;
}

v1::AttemptReport KeeperBench::Await(
    Keeper& keeper, uint32_t attempt,
    const std::function<bool(const v1::AttemptReport&)>& done) const {
  v1::AttemptReport found;
  for (int i = 0; i < kSteps; ++i) {
    const v1::NodeReport node = keeper.Poll();
    found.Clear();
    for (const auto& report : node.attempts()) {
      if (report.job_id() == job_id && report.attempt() == attempt) found = report;
    }
    if (done(found)) return found;
    std::this_thread::sleep_for(kStep);
  }
  FAIL("not seen: " << found.DebugString());
  return found;
}

v1::AttemptReport KeeperBench::AwaitEnd(Keeper& keeper, uint32_t attempt) const {
  return Await(keeper, attempt,
               [](const v1::AttemptReport& report) { return report.phase() == v1::ATTEMPT_ENDED; });
}

void KeeperBench::AwaitFile(const std::string& name, const std::string& text) const {
  for (int i = 0; i < kSteps; ++i) {
    if (Slurp(run + "/" + name).find(text) != std::string::npos) return;
    std::this_thread::sleep_for(kStep);
  }
  FAIL("no '" << text << "' in " << name);
}

int KeeperBench::Lines(const std::string& name) const {
  const std::string text = Slurp(run + "/" + name);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

void KeeperBench::Touch(const std::string& name) const { std::ofstream(run + "/" + name) << "x\n"; }

std::set<int> KeeperBench::Living() const {
  std::set<int> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    const std::string environment = Slurp("/proc/" + std::to_string(pid) + "/environ");
    if (environment.find("TRIREME_RUN_FOLDER=" + run) != std::string::npos) pids.insert(pid);
  }
  return pids;
}

launcher::ProcessIdentity KeeperBench::Guard(uint32_t attempt) const {
  const auto guard = nlohmann::json::parse(Slurp(Folder(attempt) + "/guard.json"), nullptr, false);
  if (!guard.is_object() || !guard.contains("pid")) return {};  // a Slurm job has claimed it
  return {guard["pid"], guard["start_ticks"], guard["boot_id"]};
}

std::string KeeperBench::Folder(uint32_t attempt) const {
  return run + "/attempts/" + std::to_string(attempt);
}

bool KeeperBench::HasRecord(uint32_t attempt) const {
  return fs::exists(options.state_folder + "/attempts/7-" + std::to_string(attempt) + ".json");
}

void KeeperBench::CheckNothingLeft(uint32_t attempt) const {
  CHECK(Living().empty());
  CHECK_FALSE(launcher::IsAlive(Guard(attempt)));
  const launcher::TemporaryFolders folders = AttemptFolder(Attempt(attempt)).temporary_folders();
  CHECK_FALSE(fs::exists(folders.session));
  CHECK_FALSE(fs::exists(folders.shared_memory));
}

}  // namespace trireme::keeper
