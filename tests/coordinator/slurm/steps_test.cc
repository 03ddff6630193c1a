// Steps of an allocation with programs that stand for Slurm's.
#include "coordinator/slurm/steps.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "tests/coordinator/slurm/fake_slurm.h"

namespace trireme::slurm {
namespace {

const std::set<std::string> kNames{"run-1", "run-2"};

bool BecomeGone(Steps& steps) {
  for (int i = 0; i < 6000; ++i) {
    if (steps.AreGone(kNames)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Lines of the file `steps`, as squeue prints them.
void PlaySteps(const FakeSlurm& fake, const std::string& steps) {
  fake.Write("steps", steps);
  fake.Program("squeue", "cat " + fake.folder() + "/steps");
  fake.Program("scancel", "for id; do sed -i \"/^$id|/d\" " + fake.folder() + "/steps; done");
}

TEST_CASE("steps are killed by their names until squeue names none") {
  FakeSlurm fake;
  PlaySteps(fake, "5.0|run-1\n5.1|other\n5.2|run-2\n5.batch|batch\n5.3|run-10\n");
  Steps steps("5");
  CHECK_FALSE(steps.AreGone(kNames));  // it must ask first
  CHECK(BecomeGone(steps));
  CHECK(fake.Read("scancel.calls") == "--signal=KILL 5.0 5.2\n");
  CHECK(fake.Read("steps") == "5.1|other\n5.batch|batch\n5.3|run-10\n");
  CHECK(fake.Read("squeue.calls").find("--noheader --steps --jobs=5 --format=%i|%j\n") == 0);
  CHECK(steps.AreGone(kNames));
  CHECK_FALSE(steps.AreGone({"other"}));
  CHECK(steps.AreGone({}));
}

TEST_CASE("what squeue does not answer is not gone") {
  FakeSlurm fake;
  fake.Program("squeue", "echo 5.0; exit 1");
  Steps steps("5");
  while (fake.Read("squeue.calls").size() < 150) {
    CHECK_FALSE(steps.AreGone(kNames));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  PlaySteps(fake, "");
  CHECK(BecomeGone(steps));
}

}  // namespace
}  // namespace trireme::slurm
