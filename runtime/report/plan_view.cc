// Figures and tables of the plan; the picture of the schedule is in plan_view_picture.cc.
#include "runtime/report/plan_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/plan/job_checks.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/state_layout.h"
#include "runtime/report/plan_view_picture.h"

namespace trireme::report {

std::string ReadableCount(uint64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t at = 0; at < digits.size(); ++at) {
    if (at > 0 && (digits.size() - at) % 3 == 0) text += ',';
    text += digits[at];
  }
  return text;
}

StageBytes BytesOf(const v1::StagePlan& stage) {
  StageBytes bytes;
  uint64_t sum = 0;
  for (const v1::Pool& pool : stage.pools()) {
    const uint64_t size = pool.slot_bytes() * pool.slots();
    if (pool.place() != v1::ARENA) continue;
    sum += size;
    switch (pool.kind()) {
      case v1::PARAMETER:
      case v1::GATHERED:
        bytes.parameters += size;
        break;
      case v1::GRADIENT:
      case v1::PARTIAL:
        bytes.gradients += size;
        break;
      case v1::MASTER:
      case v1::MOMENT1:
      case v1::MOMENT2:
      case v1::UPDATE:
        bytes.optimizer += size;
        break;
      case v1::ACTIVATION:
      case v1::STASH:
      case v1::GRADIENT_STASH:
        bytes.activations += size;
        break;
      case v1::INPUT:
      case v1::OUTPUT:
      case v1::GRADIENT_IN:
      case v1::GRADIENT_OUT:
        bytes.boundaries += size;
        break;
      case v1::TEMPORARY:
        bytes.temporaries += size;
        break;
      case v1::SCRATCH:
        bytes.scratch += size;
        break;
      default:
        bytes.other += size;
    }
  }
  bytes.total = stage.arena_bytes();
  bytes.host = stage.host_bytes();
  bytes.file = stage.file_bytes();
  bytes.snapshots = stage.snapshot_bytes();
  if (bytes.total > sum) bytes.other += bytes.total - sum;
  return bytes;
}

std::string NameBlocks(uint32_t first, uint32_t end, int64_t layers) {
  if (first >= end) return "nothing";
  std::vector<std::string> parts;
  const bool has_head = layers > 0 && end == layers + 2;
  const uint32_t first_layer = std::max(first, 1u);
  const uint32_t last_layer = has_head ? end - 2 : end - 1;
  if (first == 0) parts.push_back("embedding");
  if (last_layer == first_layer) parts.push_back(fmt::format("layer {}", first_layer));
  if (last_layer > first_layer)
    parts.push_back(fmt::format("layers {}-{}", first_layer, last_layer));
  if (has_head) parts.push_back("head");
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

absl::StatusOr<PlanTimeline> TimelineOf(const v1::Plan& plan) {
  if (plan.stages_size() == 0) return absl::FailedPreconditionError("the plan holds no stages");
  PlanTimeline timeline;
  timeline.shape = {.ranks = static_cast<uint32_t>(plan.stages_size()),
                    .micro_batches = plan.micro_batches(),
                    .virtual_stages = static_cast<uint32_t>(plan.stages(0).first_block_size())};
  plan::ComputeOrder order;
  for (const v1::StagePlan& stage : plan.stages()) {
    std::vector<plan::ComputeStep>& steps = order.emplace_back();
    for (const v1::Instruction& instruction : stage.step().instructions()) {
      if (instruction.op_begin() != 0) continue;  // a later part of the same
      plan::Compute kind;
      switch (instruction.kind()) {
        case v1::F:
          kind = plan::Compute::kForward;
          break;
        case v1::I:
          kind = plan::Compute::kInputGrad;
          break;
        case v1::W:
          kind = plan::Compute::kWeightGrad;
          break;
        case v1::B:
          kind = plan::Compute::kBackward;
          break;
        default:
          continue;
      }
      steps.push_back({kind, instruction.virtual_stage(), instruction.micro_batch()});
    }
  }
  absl::StatusOr<plan::Simulation> simulation = plan::Simulate(order, timeline.shape, {});
  if (!simulation.ok()) return simulation.status();
  timeline.simulation = *std::move(simulation);
  return timeline;
}

std::vector<int> RowsShown(uint32_t ranks, uint32_t most) {
  std::vector<int> rows;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (ranks <= most || rank < most / 2 || rank >= ranks - most / 2) {
      rows.push_back(static_cast<int>(rank));
    } else if (rows.empty() || rows.back() != -1) {
      rows.push_back(-1);
    }
  }
  return rows;
}

static std::string Where(const std::string& place) {
  return place == "host" ? "host memory" : "a file";
}

// Of optimizer state that is offloaded and in memory all the same; else empty.
static std::string OffloadNote(const v1::Plan& plan) {
  if (!plan::OffloadsState(plan.job())) return "";
  const plan::StateCut cut = plan::StateCutOf(plan);
  if (cut.saves) return "";
  if (cut.better_piece_bytes == 0) return "offload saves nothing, the state is too small";
  return fmt::format("offload saves nothing, all is at hand; use offload.piece_bytes={}",
                     cut.better_piece_bytes);
}

static std::string ScheduleText(const v1::Plan& plan) {
  const v1::JobSpec& job = plan.job();
  const uint32_t virtual_stages =
      plan.stages_size() == 0 ? 1 : static_cast<uint32_t>(plan.stages(0).first_block_size());
  std::string schedule = plan.schedule();
  if (virtual_stages > 1) schedule += fmt::format(", {} virtual stages per rank", virtual_stages);
  if (plan::ZeroStage(plan) > 0) schedule += fmt::format(", ZeRO-{}", plan::ZeroStage(plan));
  if (job.parallelism().sequence_parallel()) schedule += ", sequence parallel";
  const auto& recompute = job.parallelism().recompute();
  const bool uniform = recompute.size() == 1;
  if (!recompute.empty() && !(uniform && recompute[0] == "none")) {
    schedule += ", recompute " + (uniform ? recompute[0] : std::string("by layer"));
  }
  const auto& offload = job.offload();
  if (plan::OffloadsState(job)) {
    schedule += ", optimizer state offloaded to " + Where(offload.optimizer_state()) +
                " in pieces of " + ReadableBytes(plan::StateCutOf(plan).piece_bytes);
  }
  if (plan::OffloadsActivations(job)) {
    schedule += plan::MovesActivations(plan)
                    ? ", activations offloaded to " + Where(offload.activations())
                    : ", activations: nothing to move in this schedule";
  }
  return schedule;
}

std::vector<std::pair<std::string, std::string>> SummaryOf(const v1::Plan& plan) {
  const v1::JobSpec& job = plan.job();
  const v1::Mesh& mesh = plan.mesh();
  const v1::ModelConfig& model = job.model().config();
  std::vector<std::pair<std::string, std::string>> lines;
  if (job.has_name()) lines.emplace_back("job", job.name());
  if (model.hidden_size() > 0) {
    lines.emplace_back(
        "model",
        fmt::format("{}, {} layers, {} wide, {} heads, {} tokens, {}", model.model_type(),
                    model.num_hidden_layers(), model.hidden_size(), model.num_attention_heads(),
                    ReadableCount(model.vocab_size()), job.training().dtype()));
  }
  const uint64_t ranks = uint64_t{mesh.pipeline()} * mesh.data() * mesh.tensor();
  lines.emplace_back("mesh", fmt::format("{} {}: pipeline {}, data {}, tensor {}",
                                         ReadableCount(ranks), ranks == 1 ? "rank" : "ranks",
                                         mesh.pipeline(), mesh.data(), mesh.tensor()));
  lines.emplace_back("schedule", ScheduleText(plan));
  if (job.parallelism().zero_stage() > 0 && mesh.data() == 1) {
    lines.emplace_back("ZeRO", fmt::format("zero_stage {} has no effect: there is one replica",
                                           job.parallelism().zero_stage()));
  }
  if (const std::string note = OffloadNote(plan); !note.empty()) {
    lines.emplace_back("optimizer", note);
  }
  std::string batch =
      fmt::format("{} micro-batch{}", plan.micro_batches(), plan.micro_batches() == 1 ? "" : "es");
  if (job.training().micro_batch_size() > 0)
    batch += fmt::format(" of {}", job.training().micro_batch_size());
  batch += " per replica and step";
  if (job.training().global_batch_size() > 0) {
    batch += fmt::format(", global batch {}",
                         ReadableCount(static_cast<uint64_t>(job.training().global_batch_size())));
  }
  lines.emplace_back("batch", batch);
  const int64_t rows = job.training().micro_batch_size() * job.data().sequence_length();
  if (const int64_t tile = model.hidden_size() > 0 ? plan::LossTileRowsOf(job) : rows;
      tile < rows) {
    lines.emplace_back("loss", fmt::format("in tiles of {} of a micro-batch's {} rows",
                                           ReadableCount(static_cast<uint64_t>(tile)),
                                           ReadableCount(static_cast<uint64_t>(rows))));
  }
  lines.emplace_back("bubble",
                     fmt::format("{:.1f} % idle over busy, simulated", 100 * plan.bubble()));
  uint64_t largest = 0;
  uint64_t all = 0, most_in_file = 0;
  int where = 0;
  for (int p = 0; p < plan.stages_size(); ++p) {
    const uint64_t bytes = plan::MemoryBytes(plan.stages(p));
    most_in_file = std::max(most_in_file, plan.stages(p).file_bytes());
    all += bytes * mesh.data() * mesh.tensor();
    if (bytes > largest) {
      largest = bytes;
      where = p;
    }
  }
  lines.emplace_back("memory", fmt::format("at most {} per rank (stage {}), {} in all",
                                           ReadableBytes(largest), where, ReadableBytes(all)));
  if (most_in_file > 0) {
    lines.emplace_back("in a file",
                       fmt::format("at most {} per rank, offloaded", ReadableBytes(most_in_file)));
  }
  return lines;
}

namespace {

// Stages [first, last] of equal bytes and as many layers, neither first nor last of the model.
struct StageRange {
  int first = 0;
  int last = 0;
};

bool Alike(const v1::Plan& plan, int a, int b) {
  const v1::StagePlan& left = plan.stages(a);
  const v1::StagePlan& right = plan.stages(b);
  if (!(BytesOf(left) == BytesOf(right))) return false;
  if (left.first_block_size() != right.first_block_size()) return false;
  const auto last_block =
      static_cast<uint32_t>(plan.job().model().config().num_hidden_layers() + 1);
  for (int v = 0; v < left.first_block_size(); ++v) {
    if (left.end_block(v) - left.first_block(v) != right.end_block(v) - right.first_block(v))
      return false;
    if (left.first_block(v) == 0 || right.first_block(v) == 0) return false;
    if (left.end_block(v) > last_block || right.end_block(v) > last_block) return false;
  }
  return true;
}

std::vector<StageRange> Collapse(const v1::Plan& plan) {
  std::vector<StageRange> ranges;
  for (int p = 0; p < plan.stages_size(); ++p) {
    if (!ranges.empty() && Alike(plan, ranges.back().first, p)) {
      ranges.back().last = p;
    } else {
      ranges.push_back({p, p});
    }
  }
  return ranges;
}

std::string NameRange(const v1::Plan& plan, const StageRange& range) {
  const int64_t layers = plan.job().model().config().num_hidden_layers();
  const v1::StagePlan& stage = plan.stages(range.first);
  std::string text;
  if (range.first != range.last) {
    uint32_t held = 0;
    for (int v = 0; v < stage.first_block_size(); ++v)
      held += stage.end_block(v) - stage.first_block(v);
    return fmt::format("{} {} each", held, held == 1 ? "layer" : "layers");
  }
  for (int v = 0; v < stage.first_block_size(); ++v) {
    text +=
        (text.empty() ? "" : "; ") + NameBlocks(stage.first_block(v), stage.end_block(v), layers);
  }
  return text;
}

struct Column {
  const char* name;
  uint64_t StageBytes::*bytes;
};

constexpr Column kColumns[] = {
    {"parameters", &StageBytes::parameters}, {"gradients", &StageBytes::gradients},
    {"optimizer", &StageBytes::optimizer},   {"activations", &StageBytes::activations},
    {"boundaries", &StageBytes::boundaries}, {"temporaries", &StageBytes::temporaries},
    {"scratch", &StageBytes::scratch},       {"other", &StageBytes::other},
    {"in the arena", &StageBytes::total},    {"in host", &StageBytes::host},
    {"in a file", &StageBytes::file},        {"in snapshots", &StageBytes::snapshots}};

// The table turned: a line per kind of memory, a column per range of stages, as many as fit.
std::string MemoryTable(const v1::Plan& plan, const std::vector<StageRange>& ranges,
                        const DescribeOptions& options) {
  constexpr size_t kLabel = 14;
  constexpr size_t kCell = 12;
  const size_t room =
      std::max<size_t>(1, (static_cast<size_t>(std::max(options.width, 60)) - kLabel) / kCell);
  const std::vector<int> shown =
      RowsShown(static_cast<uint32_t>(ranges.size()),
                static_cast<uint32_t>(ranges.size() <= room ? room : room - 1));
  std::vector<StageBytes> bytes;
  std::string text = fmt::format("{:<{}}", "per rank", kLabel);
  for (const int index : shown) {
    const StageRange range = index < 0 ? StageRange{} : ranges[static_cast<size_t>(index)];
    bytes.push_back(index < 0 ? StageBytes{} : BytesOf(plan.stages(range.first)));
    const std::string name = index < 0 ? "..."
                             : range.first == range.last
                                 ? fmt::format("stage {}", range.first)
                                 : fmt::format("{}-{}", range.first, range.last);
    text += fmt::format("{:>{}}", name, kCell);
  }
  text += '\n';
  for (const Column& column : kColumns) {
    text += fmt::format("  {:<{}}", column.name, kLabel - 2);
    for (size_t i = 0; i < shown.size(); ++i) {
      const uint64_t value = bytes[i].*column.bytes;
      text += fmt::format("{:>{}}",
                          shown[i] < 0 ? ""
                          : value == 0 ? "-"
                                       : ReadableBytes(value),
                          kCell);
    }
    text += '\n';
  }
  return text;
}

std::string StageLines(const v1::Plan& plan, const std::vector<StageRange>& ranges,
                       const DescribeOptions& options) {
  std::string text;
  const uint32_t per_stage = plan.mesh().data() * plan.mesh().tensor();
  const size_t width = static_cast<size_t>(std::max(options.width, 60));
  for (const int index : RowsShown(static_cast<uint32_t>(ranges.size()), 16)) {
    if (index < 0) {
      text += fmt::format("  ... {} more\n", ranges.size() - 16);
      continue;
    }
    const StageRange& range = ranges[static_cast<size_t>(index)];
    const uint64_t first = uint64_t{per_stage} * static_cast<uint64_t>(range.first);
    const uint64_t last = uint64_t{per_stage} * (static_cast<uint64_t>(range.last) + 1) - 1;
    const std::string stages = range.first == range.last
                                   ? fmt::format("stage {}", range.first)
                                   : fmt::format("stages {}-{}", range.first, range.last);
    const std::string ranks =
        first == last ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, last);
    std::string line = fmt::format("  {:<14}{:<18}{}", stages, ranks, NameRange(plan, range));
    if (line.size() > width) line = line.substr(0, width - 3) + "...";
    text += line + '\n';
  }
  return text;
}

}  // namespace

std::string DescribePlan(const v1::Plan& plan, const DescribeOptions& options) {
  std::string text;
  for (const auto& [name, value] : SummaryOf(plan)) text += fmt::format("{:<10}{}\n", name, value);
  const std::vector<StageRange> ranges = Collapse(plan);
  text += '\n' + StageLines(plan, ranges, options);
  text += '\n' + MemoryTable(plan, ranges, options);
  const absl::StatusOr<PlanTimeline> timeline = TimelineOf(plan);
  if (!timeline.ok()) {
    return text + "\nno picture of the schedule: " + std::string(timeline.status().message()) +
           '\n';
  }
  return text + '\n' + SchedulePicture(*timeline, options);
}

}  // namespace trireme::report
