// What ranks find in their run folder must be one job, whichever program took it.
#include "coordinator/daemon/plan_files.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "coordinator/planning/job_planning.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"

namespace trireme::coordinator {
namespace {

namespace fs = std::filesystem;

class RunFolder {
 public:
  RunFolder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~RunFolder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/trireme-plan-files-XXXXXX";
};

v1::Job StoredJob(const std::string& folder) {
  v1::Job job;
  v1::JobSpec& spec = *job.mutable_spec();
  v1::ModelConfig& model = *spec.mutable_model()->mutable_config();
  model.set_model_type("gpt2");
  model.set_vocab_size(32);
  model.set_hidden_size(16);
  model.set_num_hidden_layers(2);
  model.set_num_attention_heads(2);
  spec.mutable_data()->add_text_files("/data/text.txt");
  spec.mutable_data()->set_sequence_length(8);
  spec.mutable_training()->set_steps(2);
  spec.mutable_training()->set_global_batch_size(4);
  spec.mutable_runtime()->set_runs_directory("/runs");  // a relative one is the current folder's
  spec::ApplyDefaults(spec);
  job.mutable_resources()->set_ranks(1);
  job.set_run_folder(folder);
  return job;
}

}  // namespace

TEST_CASE("plan files: a job that an older program stored has the defaults of this one") {
  const RunFolder folder;
  v1::Job job = StoredJob(folder.path());
  const v1::JobSpec whole = job.spec();
  // Fields that came after the first programs.
  job.mutable_spec()->mutable_training()->clear_loss_tile_rows();
  job.mutable_spec()->mutable_training()->clear_gradient_transfer();
  job.mutable_spec()->mutable_parallelism()->clear_recompute();
  job.mutable_spec()->clear_offload();
  CHECK(CurrentSpec(job).SerializeAsString() == whole.SerializeAsString());

  const absl::Status written = WritePlanFiles(job);
  INFO(written.ToString());
  REQUIRE(written.ok());
  const auto plan = plan::ReadPlanFile(folder.path() + "/plan.pb");
  REQUIRE(plan.ok());
  // As a rank does: it refuses a plan that is another job's.
  const auto read = spec::LoadJob(folder.path() + "/job.yaml", {});
  INFO(read.status().ToString());
  REQUIRE(read.ok());
  CHECK(plan::JobOnMesh(*read, plan->mesh()).DebugString() == plan->job().DebugString());
}

}  // namespace trireme::coordinator
