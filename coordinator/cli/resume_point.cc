#include "coordinator/cli/resume_point.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "checkpoint/client/reader.h"
#include "coordinator/cli/checkpoint_folder.h"
#include "coordinator/cli/snapshots_here.h"
#include "runtime/base/status_macros.h"
#include "runtime/spec/job_spec.h"

namespace trireme::cli {
namespace {

absl::StatusOr<ResumePoint> FindNewestOf(const std::string& run_folder, const v1::JobSpec& job,
                                         Trust trust) {
  const std::string root = CheckpointRoot(run_folder, job);
  ResumePoint point;
  std::vector<checkpoint::Skipped> skipped;
  const auto newest = trust == Trust::kBytes ? checkpoint::FindNewestIntact(root, &skipped)
                                             : checkpoint::FindNewestUndamaged(root, &skipped);
  if (absl::IsNotFound(newest.status())) {
    const auto here = FindSnapshotsHere(run_folder);
    point.notes.push_back(
        here ? fmt::format("no checkpoint in {}: from memory, step {}, where all ranks have it",
                           root, here->step)
             : fmt::format("no checkpoint in {}: from the start", root));
    return point;
  }
  // What is damaged may be mended or moved; what could not be judged may be sound.
  if (!newest.ok() && !absl::IsDataLoss(newest.status())) return newest.status();
  if (!newest.ok()) {
    return absl::DataLossError(fmt::format(
        "{}\nmend or move them away to begin again, or give --resume another checkpoint",
        std::string(newest.status().message())));
  }
  for (const checkpoint::Skipped& each : skipped) {
    point.notes.push_back(
        fmt::format("passed over {}: {}", each.folder, std::string(each.reason.message())));
  }
  point.checkpoint = *newest;
  return point;
}

}  // namespace

std::string CheckpointRoot(const std::string& run_folder, const v1::JobSpec& job) {
  return job.checkpoint().has_directory() ? job.checkpoint().directory()
                                          : run_folder + "/checkpoints";
}

absl::StatusOr<ResumePoint> FindResumePoint(const std::string& resume,
                                            const std::string& run_folder, const v1::JobSpec& job,
                                            Trust trust) {
  ResumePoint point;
  if (resume.empty()) return point;
  if (resume == "auto") {
    ASSIGN_OR_RETURN(point, FindNewestOf(run_folder, job, trust));
    if (point.checkpoint.empty()) return point;
  } else {
    ASSIGN_OR_RETURN(const FoundCheckpoint found, FindCheckpoint(resume));
    point.notes = PassedOverTexts(found);
    std::error_code error;
    point.checkpoint = std::filesystem::absolute(found.folder, error).string();
    if (error) {
      return absl::UnavailableError(fmt::format(
          "the folder this program was started in is gone: name {} by its absolute path",
          found.folder));
    }
  }
  ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint, checkpoint::Open(point.checkpoint));
  point.step = checkpoint.info().step;
  // A job that a newer program wrote may not be readable; the worker compares its hash.
  const auto made_by = spec::ParseEcho(checkpoint.info().job_yaml, point.checkpoint);
  if (made_by.ok()) {
    const spec::ResumeDifferences differences = spec::CompareForResume(*made_by, job);
    if (!differences.forbidden.empty()) {
      std::string text = fmt::format(
          "{}: was made by another job. Set these back (--set), or start anew without "
          "--resume",
          point.checkpoint);
      for (const std::string& each : differences.forbidden) text += "\n  " + each;
      for (const std::string& each : point.notes) text += "\n" + each;
      return absl::InvalidArgumentError(text);
    }
    for (const std::string& each : differences.changed) point.notes.push_back("changed: " + each);
  }
  const bool believed = resume == "auto" && trust == Trust::kHeaders;
  point.notes.insert(
      point.notes.begin(),
      fmt::format("from step {} of {}{}", checkpoint.info().step, point.checkpoint,
                  believed ? ", unless the ranks find damage in it (rank 0's log)" : ""));
  return point;
}

}  // namespace trireme::cli
