// What ranks must have alike of a job, and what each node may have of its own.
#include "worker/compared_job.h"

#include <catch2/catch.hpp>
#include <string>

namespace trireme::worker {

namespace {

v1::JobSpec JobOn(const std::string& node) {
  v1::JobSpec job;
  job.set_name("one");
  job.mutable_data()->add_text_files("/" + node + "/text.txt");
  job.mutable_checkpoint()->set_directory("/" + node + "/checkpoints");
  job.mutable_runtime()->set_runs_directory("/" + node + "/runs");
  job.mutable_offload()->set_optimizer_state("file");
  job.mutable_offload()->set_directory("/" + node + "/scratch");
  return job;
}

}  // namespace

TEST_CASE("compared job: places of files may be each node's own") {
  const std::string a = ComparedJob(JobOn("a")), b = ComparedJob(JobOn("b"));
  CHECK(DifferencesOf(a, b, "on rank 0").empty());
  v1::JobSpec without = JobOn("b");
  without.mutable_offload()->clear_directory();
  CHECK(DifferencesOf(a, ComparedJob(without), "on rank 0").empty());
}

TEST_CASE("compared job: what is offloaded must be alike") {
  v1::JobSpec other = JobOn("b");
  other.mutable_offload()->set_optimizer_state("none");
  const std::string text = DifferencesOf(ComparedJob(JobOn("a")), ComparedJob(other), "on rank 0");
  CHECK(text.find("optimizer_state") != std::string::npos);
  CHECK(text.find("on rank 0") != std::string::npos);
}

}  // namespace trireme::worker
