#include "worker/trace_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"
#include "runtime/report/trace.h"
#include "worker/run_files.h"

namespace trireme::worker {

namespace {

std::string SpansPath(const std::string& run_directory, int rank) {
  return absl::StrCat(run_directory, "/trace/rank-", rank, ".spans");
}

// Of its file.
std::vector<report::TraceSpan> SpansOf(const std::string& run_directory, int rank) {
  std::vector<report::TraceSpan> spans;
  std::ifstream file(SpansPath(run_directory, rank));
  char what = 0;
  int64_t step = 0, start_ns = 0, end_ns = 0;
  int kind = 0;
  uint32_t virtual_stage = 0, micro_batch = 0;
  while (file >> what >> step >> kind >> virtual_stage >> micro_batch >> start_ns >> end_ns) {
    v1::Instruction instruction;
    instruction.set_kind(static_cast<v1::InstructionKind>(kind));
    instruction.set_virtual_stage(virtual_stage);
    instruction.set_micro_batch(micro_batch);
    if (what == 'i') {
      spans.push_back(report::SpanOf(rank, instruction, start_ns, end_ns));
    } else {
      int group = 0, peer = -1;
      uint32_t bucket = 0;
      file >> group >> peer >> bucket;
      instruction.set_bucket(bucket);
      spans.push_back(report::CommunicationSpanOf(
          rank, instruction, engine::TextOf(static_cast<engine::GroupName>(group)), start_ns,
          end_ns));
    }
    spans.back().step = step;
  }
  return spans;
}

}  // namespace

TracedSteps::TracedSteps(const v1::JobSpec& job)
    : begins_(job.runtime().trace_at().begin(), job.runtime().trace_at().end()),
      length_(static_cast<uint64_t>(job.runtime().trace_steps())),
      steps_(static_cast<uint64_t>(job.training().steps())),
      chosen_(!begins_.empty()) {
  if (!chosen_) begins_ = {steps_ - std::min(length_, steps_) + 1};
}

std::optional<std::pair<uint64_t, uint64_t>> TracedSteps::Around(uint64_t step) const {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), step);
  if (next == begins_.begin()) return std::nullopt;
  const uint64_t first = *std::prev(next);
  const uint64_t end = std::min(first + length_, steps_ + 1);
  if (step >= end) return std::nullopt;
  return std::pair(first, end - 1);
}

bool TracedSteps::Contains(uint64_t step) const { return Around(step).has_value(); }

bool TracedSteps::Ends(uint64_t step) const {
  const auto around = Around(step);
  return around.has_value() && around->second == step;
}

std::string TracedSteps::FileName(uint64_t first) const {
  return chosen_ ? absl::StrCat("trace-", first, ".json") : "trace.json";
}

void TraceKeeper::Keep(uint64_t step, const engine::StepTrace& trace) {
  if (first_step_ == 0) first_step_ = step;
  for (const engine::InstructionSpan& span : trace.instructions()) {
    instructions_.push_back({step, span});
  }
  for (const engine::CommunicationSpan& span : trace.communications()) {
    if (span.issued_ns > 0 && span.done_ns > 0) communications_.push_back({step, span});
  }
}

std::string TraceKeeper::Text(const engine::JobClock& clock) const {
  std::string text;
  for (const auto& [step, span] : instructions_) {
    absl::StrAppend(&text, "i ", step, " ", span.kind, " ", span.virtual_stage, " ",
                    span.micro_batch, " ", clock.ToJob(span.start_ns), " ");
    absl::StrAppend(&text, clock.ToJob(span.end_ns), "\n");
  }
  for (const auto& [step, span] : communications_) {
    absl::StrAppend(&text, "c ", step, " ", span.kind, " ", span.virtual_stage, " ",
                    span.micro_batch, " ", clock.ToJob(span.issued_ns), " ");
    absl::StrAppend(&text, clock.ToJob(span.done_ns), " ", static_cast<int>(span.group), " ",
                    span.peer, " ", span.bucket, "\n");
  }
  return text;
}

absl::Status TraceKeeper::WriteRank(const std::string& run_directory, int rank,
                                    const engine::JobClock& clock) const {
  std::error_code error;
  std::filesystem::create_directories(run_directory + "/trace", error);
  return WritePicture(SpansPath(run_directory, rank), Text(clock));
}

absl::Status MergeTraces(const std::string& run_directory, int ranks,
                         const std::string& file_name) {
  // Twice read, and never more of it at hand than a rank's: there may be thousands.
  int64_t origin_ns = std::numeric_limits<int64_t>::max();
  for (int rank = 0; rank < ranks; ++rank) {
    for (const report::TraceSpan& span : SpansOf(run_directory, rank)) {
      origin_ns = std::min(origin_ns, span.start_ns);
    }
  }
  int rank = -1;
  const auto next = [&]() -> std::string {
    if (rank < 0) {
      ++rank;
      return std::string(report::kTraceBegin);
    }
    while (rank < ranks) {
      std::string events = report::TraceEvents(SpansOf(run_directory, rank++), origin_ns);
      if (!events.empty()) return events;
    }
    return rank++ == ranks ? std::string(report::kTraceEnd) : std::string();
  };
  RETURN_IF_ERROR(OfDisk(base::WriteWholeFile(absl::StrCat(run_directory, "/", file_name), next)));
  std::error_code ignored;
  std::filesystem::remove_all(run_directory + "/trace", ignored);
  return absl::OkStatus();
}

}  // namespace trireme::worker
