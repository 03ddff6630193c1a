// What of a run folder is shown, and that nothing in it leads out.
#include "coordinator/run_files/run_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "coordinator/run_files/run_owner.h"
#include "tests/coordinator/run_files/scratch.h"

namespace trireme::coordinator {
namespace {

void Write(const std::string& path, const std::string& text = "text") {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

bool Opens(const std::string& folder, const std::string& path) {
  const auto fd = OpenRunFile(folder, path);
  if (fd.ok()) close(*fd);
  if (!fd.ok()) CHECK(absl::IsNotFound(fd.status()));
  return fd.ok();
}

}  // namespace

TEST_CASE("run files: nothing is shown of another job's folder") {
  const Scratch scratch;
  const std::string file = scratch.path() + "/run/run.json";
  v1::Job job;
  job.set_id(3);
  job.set_run_folder(scratch.path() + "/run");
  // Nobody's, as before folders were claimed.
  CHECK(CheckRunOwner(job, "ours").ok());
  Write(file, R"({"version": 1, "job": 3, "store": "ours", "epoch": 1})");
  CHECK(CheckRunOwner(job, "ours").ok());
  CHECK(absl::IsNotFound(CheckRunOwner(job, "theirs")));
  job.set_id(4);
  CHECK(absl::IsNotFound(CheckRunOwner(job, "ours")));
  job.set_id(3);
  for (const char* text : {"", "{}", "[", R"({"job": "3", "store": "ours"})", R"({"job": 3})"}) {
    INFO(text);
    Write(file, text);
    CHECK(absl::IsNotFound(CheckRunOwner(job, "ours")));
  }
  // Ranks write there: what blocks its reader, or leads out, does not.
  Write(scratch.path() + "/elsewhere", R"({"job": 3, "store": "ours"})");
  std::filesystem::remove(file);
  std::filesystem::create_symlink(scratch.path() + "/elsewhere", file);
  CHECK(absl::IsNotFound(CheckRunOwner(job, "ours")));
  std::filesystem::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK(absl::IsNotFound(CheckRunOwner(job, "ours")));
}

TEST_CASE("run files: what is for people is listed and opens") {
  const Scratch scratch;
  const std::vector<std::string> shown{"job.yaml",
                                       "memory.svg",
                                       "metrics.jsonl",
                                       "plan.pb",
                                       "report.html",
                                       "schedule.svg",
                                       "tensorboard/events.out.tfevents.1.host",
                                       "timeline/rank-0.steps",
                                       "trace-10.json",
                                       "trace.json"};
  for (const std::string& path : shown) Write(scratch.path() + "/" + path, path);
  for (const char* other :
       {"attempts/1/guard.json", "attempts/1/logs/rank-0.log", ".hidden.svg", "tensorboard/other",
        "timeline/a.svg", "timeline/.steps", "checkpoints/x.svg", "trace-.json",
        "trace-1.json.partial", "metrics.jsonl.partial", "secret", "a b.svg",
        "tensorboard/events.out.tfevents."}) {
    Write(scratch.path() + "/" + other);
    CHECK_FALSE(Opens(scratch.path(), other));
  }
  std::vector<std::string> listed;
  for (const v1::FileInfo& file : ListRunFiles(scratch.path())) {
    listed.push_back(file.path());
    CHECK(file.bytes() == file.path().size());
    CHECK(file.written_unix_ns() > 0);
    CHECK(Opens(scratch.path(), file.path()));
  }
  CHECK(listed == shown);
  CHECK(ListRunFiles(scratch.path() + "/none").empty());
  CHECK_FALSE(Opens(scratch.path() + "/none", "job.yaml"));
}

TEST_CASE("run files: nothing leads out of the folder or holds the reader up") {
  const Scratch scratch;
  const std::string outside = scratch.path() + "/outside", run = scratch.path() + "/run";
  Write(outside + "/job.yaml", "secret");
  Write(outside + "/a.steps", "secret");
  std::filesystem::create_directories(run + "/metrics.jsonl");
  std::filesystem::create_symlink(outside + "/job.yaml", run + "/job.yaml");
  std::filesystem::create_symlink("../outside/job.yaml", run + "/a.svg");
  std::filesystem::create_symlink(outside, run + "/timeline");
  REQUIRE(mkfifo((run + "/trace.json").c_str(), 0600) == 0);
  std::filesystem::create_symlink(run, scratch.path() + "/link");
  CHECK(ListRunFiles(run).empty());
  for (const char* path :
       {"job.yaml", "a.svg", "timeline/a.steps", "metrics.jsonl", "trace.json",
        "../outside/job.yaml", "/etc/passwd", "timeline/../../outside/a.steps", "timeline//a.steps",
        "./job.yaml", "", ".", "..", "/", "timeline/", "\nx.svg"}) {
    INFO(path);
    CHECK_FALSE(Opens(run, path));
  }
  CHECK_FALSE(Opens(run, std::string("job.yaml\0.svg", 13)));
  CHECK_FALSE(Opens(run, std::string(300, 'a') + ".svg"));
  Write(outside + "/plan.pb");
  CHECK(Opens(outside, "plan.pb"));
  std::filesystem::create_symlink(outside, scratch.path() + "/other");
  CHECK_FALSE(Opens(scratch.path() + "/other", "plan.pb"));
}

}  // namespace trireme::coordinator
