// `trireme check` and `trireme plan --remote` from outside, and what else says its answer as JSON.
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "tests/coordinator/cli/control_room.h"

namespace trireme::cli {
namespace {

using nlohmann::json;

json Parsed(const Said& said) {
  INFO(said.out << said.err);
  const json value = json::parse(said.out, nullptr, /*allow_exceptions=*/false);
  REQUIRE(value.is_object());
  CHECK(Count(said.out, "\n") == 1);
  return value;
}

std::string VerdictOf(const json& all, const std::string& name) {
  for (const json& one : all["findings"]) {
    if (one["name"] == name) return one["verdict"];
  }
  return "absent";
}

// Of this process and those that it starts, while it lives.
class Path {
 public:
  explicit Path(const char* value) : before_(getenv("PATH")) { setenv("PATH", value, 1); }
  ~Path() { setenv("PATH", before_.c_str(), 1); }
  Path(const Path&) = delete;

 private:
  const std::string before_;
};

TEST_CASE("check: a line each with what to do and 1 if anything fails") {
  Room room;
  const Path nowhere("/no/such/folder");
  const Said said = room.Run("check --folder /no/such/disk --listen nowhere");
  CHECK(said.code == 1);
  for (const char* part : {"fail  mpirun", "fail  disk", "fail  listen", "skip  slurm",
                           "ok    coordinator", "-> apt install openmpi-bin", "failures\n"}) {
    CAPTURE(part);
    CHECK(Holds(said.out, part));
  }
  CHECK_FALSE(Holds(said.out, "\x1b"));
  const json all = Parsed(room.Run("check --json --folder " + room.daemon.folder()));
  CHECK(all["fit"] == false);
  CHECK(VerdictOf(all, "coordinator") == "ok");
  CHECK(VerdictOf(all, "ports") == "ok");
  CHECK(VerdictOf(all, "two ranks") == "absent");
  for (const char* name : {"open files", "locked memory", "processes", "shared memory",
                           "huge pages", "disk", "clock", "versions"}) {
    CAPTURE(name);
    CHECK(VerdictOf(all, name) != "absent");
  }
  room.daemon.Stop();
  CHECK(VerdictOf(Parsed(room.Run("check --json")), "coordinator") == "fail");
}

TEST_CASE("check: two ranks greet each other", "[mpi]") {
  Room room;
  const json all = Parsed(room.Run("check --json --deadline 90"));
  INFO(all.dump());
  CHECK(VerdictOf(all, "mpirun") == "ok");
  CHECK(VerdictOf(all, "two ranks") == "ok");
}

TEST_CASE("plan --remote: what the coordinator would say and nothing is queued") {
  Room room;
  WriteJob(room.daemon.folder());
  const Said said = room.Run("plan job.yaml --remote");
  CHECK(said.code == 0);
  CHECK(Holds(said.out, "the plan of tiny\n"));
  CHECK(Holds(said.out, "asks for"));
  CHECK(Parsed(room.Run("plan job.yaml --remote --json"))["schedule"] == "1f1b");
  CHECK(room.Run("plan job.yaml --remote --svg x.svg").code == 2);
  CHECK(room.Run("plan job.yaml --remote --json --programs").code == 2);
  CHECK(room.Run("plan job.yaml --remote --set training.stps=1").code == 2);
  CHECK(room.daemon.calls() == std::vector<std::string>({"PreviewPlan", "PreviewPlan"}));
  room.daemon.Stop();
  CHECK(room.Run("plan job.yaml --remote").code == 69);
}

TEST_CASE("json: explain with its sentences") {
  Room room;
  v1::Job job = SomeJob(1, "demo", v1::JOB_PAUSED);
  room.daemon.Put(job);
  const json why = Parsed(room.Run("explain 1 --json"));
  CHECK(why["job"]["name"] == "demo");
  CHECK(why["sentences"].size() >= 2);
  CHECK(why["next"] == "trireme resume 1");
}

}  // namespace
}  // namespace trireme::cli
