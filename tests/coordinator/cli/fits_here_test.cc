// What keeps a run from starting on a machine, or in a control group, that is too small for it.
#include "coordinator/cli/fits_here.h"

#include <catch2/catch.hpp>
#include <string>

#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/base/fake_root.h"

namespace trireme::cli {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Two stages: four ranks need 2 * 100 + 2 * 300 MiB.
v1::Plan PlanOfFour() {
  v1::Plan plan;
  plan.add_stages()->set_arena_bytes(100 * kMiB);
  plan.add_stages()->set_arena_bytes(300 * kMiB);
  return plan;
}

TEST_CASE("a run has to fit below the limit of its control group") {
  base::FakeRoot root;
  const auto check = [&] {
    return CheckFitsHere(PlanOfFour(), 4, base::LookAtMemory(root.path()));
  };
  CHECK(check().ok());
  root.Write("/proc/self/cgroup", "0::/job\n");
  root.Write("/proc/self/mountinfo", base::kMount2);
  root.Group2("/job", std::to_string(1000 * kMiB), 200 * kMiB);
  CHECK(check().ok());
  root.Group2("/job", std::to_string(1000 * kMiB), 201 * kMiB);
  const absl::Status refused = check();
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("needs 800 MiB on this machine for 4 ranks, but 799 MiB are available "
                             "below the limit of 1000 MiB in /sys/fs/cgroup/job/memory.max"));
  // A limit that leaves nothing is a limit.
  root.Group2("/job", std::to_string(1000 * kMiB), 1000 * kMiB);
  CHECK_FALSE(check().ok());
}

TEST_CASE("a run has to fit into the machine, where that says what it has") {
  base::FakeRoot root;
  const auto check = [&] {
    return CheckFitsHere(PlanOfFour(), 4, base::LookAtMemory(root.path()));
  };
  root.Write("/proc/meminfo", "MemAvailable: 818176 kB\n");  // 799 MiB
  CHECK_THAT(std::string(check().message()), Catch::Contains("but 799 MiB are available. Use"));
  root.Write("/proc/meminfo", "");
  CHECK(check().ok());
}

// Two replicas that keep a lot for backward.
v1::JobSpec JobOfTwo() {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_hidden_size(256);
  config.set_num_hidden_layers(4);
  config.set_num_attention_heads(4);
  config.set_vocab_size(256);
  job.mutable_data()->set_sequence_length(512);
  job.mutable_training()->set_global_batch_size(16);
  spec::ApplyDefaults(job);
  return job;
}

TEST_CASE("a run that does not fit is told what plan --fit would name") {
  base::FakeRoot root;
  const auto plan = plan::MakePlan(JobOfTwo(), 2);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  const uint64_t wanted = 2 * plan->stages(0).arena_bytes();
  const auto message = [&](uint64_t available) {
    root.Write("/proc/meminfo", "MemAvailable: " + std::to_string(available >> 10) + " kB\n");
    return std::string(CheckFitsHere(*plan, 2, base::LookAtMemory(root.path())).message());
  };
  CHECK(message(wanted + 1024).empty());
  CHECK_THAT(message(wanted - 1024),
             Catch::EndsWith(" are available. It fits with --set parallelism.zero_stage=1"));
  CHECK_THAT(message(kMiB), Catch::Contains("Use fewer ranks") &&
                                Catch::Contains("the smallest of the choices that `trireme plan "
                                                "--fit` tries still needs "));
}

}  // namespace
}  // namespace trireme::cli
