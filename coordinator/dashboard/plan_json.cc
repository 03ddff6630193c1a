#include "coordinator/dashboard/plan_json.h"

#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "runtime/plan/plan_file.h"
#include "runtime/report/plan_view.h"
#include "runtime/spec/job_spec.h"

namespace trireme::dashboard {
namespace {

constexpr uint32_t kMostStages = 64;
constexpr int64_t kMostUnfoldedBytes = 256 << 20;

Json BytesJson(const report::StageBytes& bytes) {
  return {{"parameters", bytes.parameters},
          {"gradients", bytes.gradients},
          {"optimizer", bytes.optimizer},
          {"activations", bytes.activations},
          {"boundaries", bytes.boundaries},
          {"temporaries", bytes.temporaries},
          {"scratch", bytes.scratch},
          {"other", bytes.other},
          {"total", bytes.total},
          {"host", bytes.host},
          {"file", bytes.file},
          {"snapshots", bytes.snapshots}};
}

Json StageJson(const v1::StagePlan& stage, int index, int64_t layers) {
  Json blocks = Json::array();
  const int count = std::min(stage.first_block_size(), stage.end_block_size());
  for (int i = 0; i < count; ++i) {
    blocks.push_back(report::NameBlocks(stage.first_block(i), stage.end_block(i), layers));
  }
  return {{"stage", index},
          {"blocks", std::move(blocks)},
          {"bytes", BytesJson(report::BytesOf(stage))}};
}

}  // namespace

absl::StatusOr<v1::Plan> ReadPlan(std::string_view bytes) {
  namespace io = google::protobuf::io;
  io::ArrayInputStream folded(bytes.data(), static_cast<int>(bytes.size()));
  io::GzipInputStream unfolded(&folded);
  const void* piece = nullptr;
  for (int size = 0; unfolded.ByteCount() <= kMostUnfoldedBytes;) {
    if (!unfolded.Next(&piece, &size)) return plan::ParsePlan(bytes);
  }
  return absl::ResourceExhaustedError("the plan is too long to be shown; see trireme plan");
}

Json PlanJson(const v1::Plan& plan) {
  Json summary = Json::array();
  for (const auto& [name, value] : report::SummaryOf(plan)) {
    summary.push_back(Json::array({name, value}));
  }
  Json stages = Json::array();
  const int64_t layers = plan.job().model().config().num_hidden_layers();
  for (const int i : report::RowsShown(static_cast<uint32_t>(plan.stages_size()), kMostStages)) {
    if (i >= 0) stages.push_back(StageJson(plan.stages(i), i, layers));
  }
  return {{"mesh",
           {{"pipeline", plan.mesh().pipeline()},
            {"data", plan.mesh().data()},
            {"tensor", plan.mesh().tensor()}}},
          {"schedule", plan.schedule()},
          {"micro_batches", plan.micro_batches()},
          {"bubble", plan.bubble()},
          {"summary", std::move(summary)},
          {"stage_count", plan.stages_size()},
          {"stages", std::move(stages)},
          {"yaml", spec::ToYaml(plan.job())}};
}

std::shared_ptr<const std::string> PlanCache::Find(uint64_t job_id, uint32_t attempt) {
  const std::pair key(job_id, attempt);
  const absl::MutexLock lock(&mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return entries_.front().text;
}

std::shared_ptr<const std::string> PlanCache::Put(uint64_t job_id, uint32_t attempt,
                                                  std::string text) {
  auto shared = std::make_shared<const std::string>(std::move(text));
  const absl::MutexLock lock(&mutex_);
  entries_.push_front({{job_id, attempt}, shared});
  if (entries_.size() > kMost) entries_.pop_back();
  return shared;
}

}  // namespace trireme::dashboard
