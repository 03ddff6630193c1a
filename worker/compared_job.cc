#include "worker/compared_job.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/spec/job_spec.h"

namespace trireme::worker {

std::string ComparedJob(v1::JobSpec job) {
  for (std::string& file : *job.mutable_data()->mutable_text_files()) {
    file = std::filesystem::path(file).filename().string();
  }
  job.mutable_checkpoint()->clear_directory();
  job.mutable_runtime()->clear_runs_directory();
  // A disk of each node's own.
  job.mutable_offload()->clear_directory();
  // Of the place that a rank has: a plan is right for any number.
  job.mutable_runtime()->clear_threads();
  return spec::ToYaml(job);
}

std::string DifferencesOf(const std::string& own, const std::string& other,
                          const std::string& there) {
  const std::vector<std::string> theirs = absl::StrSplit(other, '\n');
  const std::vector<std::string> ours = absl::StrSplit(own, '\n');
  std::string text;
  for (size_t line = 0; line < std::max(theirs.size(), ours.size()); ++line) {
    const std::string their = line < theirs.size() ? theirs[line] : "";
    const std::string our = line < ours.size() ? ours[line] : "";
    if (our == their) continue;
    absl::StrAppend(&text, "\n  \"", absl::StripAsciiWhitespace(our), "\" here, \"",
                    absl::StripAsciiWhitespace(their), "\" ", there);
  }
  return text;
}

}  // namespace trireme::worker
