#include "worker/run_files.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"
#include "runtime/json/json_text.h"

namespace trireme::worker {

namespace {

// The step of a line of metrics.jsonl; every line begins {"step":N, and others are none.
std::optional<uint64_t> StepOf(const std::string& line) {
  uint64_t step = 0;
  if (std::sscanf(line.c_str(), "{\"step\":%lu", &step) != 1) return std::nullopt;
  return step;
}

// Of a line of an evaluation; what is not finite is null there.
std::optional<double> ValidationOf(const std::string& line) {
  const nlohmann::json json = json_text::Parse(line);
  const auto found = json.is_object() ? json.find("validation_loss") : json.end();
  if (!json.is_object() || found == json.end()) return std::nullopt;
  return found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

struct Kept {
  std::string lines;
  MetricsLog::LastKept last;
};

// Those of steps up to `last`. What a crash has left of a line, or a power cut in its place, would
// make the whole file unreadable once there are lines behind it.
Kept KeptLines(const std::string& path, std::string text, uint64_t last) {
  Kept kept;
  size_t broken = 0;
  std::istringstream lines(std::move(text));
  for (std::string line; std::getline(lines, line);) {
    const std::optional<uint64_t> step = StepOf(line);
    if (lines.eof() || !step) {
      ++broken;
    } else if (*step <= last) {
      absl::StrAppend(&kept.lines, line, "\n");
      if (*step < last) continue;
      const std::optional<double> validation = ValidationOf(line);
      if (validation) kept.last.validation = validation;
      if (!validation) kept.last.step = true;
    }
  }
  if (broken > 0) {
    spdlog::warn("{}: {} cut short or no metrics; dropped", path, base::Counted(broken, "line"));
  }
  return kept;
}

// False, with errno, where something has that name.
bool RenameToFree(const std::string& path, const std::string& free) {
  if (renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, free.c_str(), RENAME_NOREPLACE) == 0) return true;
  // Not every file system has it, such as NFS. Nobody else makes that name: rank 0 has the claim.
  if (errno != EINVAL && errno != ENOSYS) return false;
  struct stat about {};
  if (lstat(free.c_str(), &about) == 0) {
    errno = EEXIST;
    return false;
  }
  return std::rename(path.c_str(), free.c_str()) == 0;
}

// What could not be read may be all there is of a long run.
absl::Status KeepAside(const std::string& path, const absl::Status& reason) {
  constexpr int kMost = 1000;
  std::string aside;
  for (int number = 1; number <= kMost; ++number) {
    aside = absl::StrCat(path, ".unread", number > 1 ? absl::StrCat("-", number) : "");
    if (RenameToFree(path, aside)) {
      spdlog::warn("{}; it is now named {}, and a new one is begun", base::MessageOf(reason),
                   aside);
      return absl::OkStatus();
    }
    if (errno != EEXIST) break;
  }
  return absl::DataLossError(absl::StrCat(base::MessageOf(reason), "; nor can it be named ", aside,
                                          ": ", std::strerror(errno), "; move it away"));
}

}  // namespace

void ExposureSums::Add(const engine::ExposureReport& step, double duration_s) {
  step_seconds += duration_s;
  for (Part engine::ExposureReport::*part :
       {&engine::ExposureReport::exposed, &engine::ExposureReport::bubble,
        &engine::ExposureReport::transfer, &engine::ExposureReport::offload}) {
    (this->*part).mean_s += (step.*part).mean_s;
    (this->*part).max_s += (step.*part).max_s;
  }
}

absl::Status OfDisk(const absl::Status& status) {
  const bool refused = absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
  return refused ? absl::DataLossError(base::MessageOf(status)) : status;
}

absl::Status WriteRunFile(const std::string& path, std::string_view content) {
  const absl::Status written = base::WriteWholeFile(path, content);
  return written.ok() ? written : absl::DataLossError(base::MessageOf(written));
}

absl::StatusOr<MetricsLog> MetricsLog::Open(const std::string& run_folder, uint64_t keep_through) {
  const std::string path = run_folder + "/metrics.jsonl";
  absl::StatusOr<std::string> old = base::ReadWholeFile(path, SIZE_MAX);
  if (!old.ok() && !absl::IsNotFound(old.status())) RETURN_IF_ERROR(KeepAside(path, old.status()));
  const Kept kept = old.ok() ? KeptLines(path, *std::move(old), keep_through) : Kept{};
  RETURN_IF_ERROR(WriteRunFile(path, kept.lines));
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) {
    return absl::DataLossError(absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
  }
  auto events = EventLog::Open(run_folder + "/tensorboard", keep_through);
  if (!events.ok()) spdlog::warn("no event files: {}", base::MessageOf(events.status()));
  return MetricsLog(file, events.ok() ? std::optional(std::move(*events)) : std::nullopt,
                    kept.last);
}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)),
      warned_(other.warned_),
      events_(std::move(other.events_)),
      last_kept_(other.last_kept_) {}

MetricsLog::~MetricsLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void MetricsLog::Step(const StepMetrics& metrics) {
  const auto ms = [](double seconds) { return seconds * 1e3; };
  nlohmann::ordered_json line{{"step", metrics.step},
                              {"loss", metrics.loss},
                              {"learning_rate", metrics.learning_rate},
                              {"gradient_norm", metrics.gradient_norm},
                              {"tokens_per_second", metrics.tokens_per_second},
                              {"overall_tokens_per_second", metrics.overall_tokens_per_second},
                              {"step_time_ms", metrics.step_time_ms},
                              {"utilisation", metrics.utilisation},
                              {"exposed_communication_ms", ms(metrics.exposure.exposed.mean_s)},
                              {"exposed_communication_max_ms", ms(metrics.exposure.exposed.max_s)},
                              {"exposed_transfer_ms", ms(metrics.exposure.transfer.mean_s)},
                              {"exposed_transfer_max_ms", ms(metrics.exposure.transfer.max_s)},
                              {"exposed_bubble_ms", ms(metrics.exposure.bubble.mean_s)},
                              {"exposed_bubble_max_ms", ms(metrics.exposure.bubble.max_s)},
                              {"exposed_offload_ms", ms(metrics.exposure.offload.mean_s)},
                              {"exposed_offload_max_ms", ms(metrics.exposure.offload.max_s)},
                              {"most_exposed_rank", metrics.exposure.most_exposed_rank}};
  if (metrics.coding.has_value()) {
    line["gradient_compression"] = metrics.coding->gradients;
    line["message_compression"] = metrics.coding->messages;
  }
  if (metrics.skipped) line["skipped"] = true;
  Write(line);
  if (!events_) return;
  const report::EventScalar scalars[] = {
      {"loss", metrics.loss},
      {"learning_rate", metrics.learning_rate},
      {"gradient_norm", metrics.gradient_norm},
      {"tokens_per_second", metrics.tokens_per_second},
      {"overall_tokens_per_second", metrics.overall_tokens_per_second},
      {"utilisation", metrics.utilisation}};
  events_->Write(metrics.step, scalars);
}

void MetricsLog::Validation(uint64_t step, double loss) {
  Write({{"step", step}, {"validation_loss", loss}});
  if (!events_) return;
  const report::EventScalar scalars[] = {{"validation_loss", loss}};
  events_->Write(step, scalars);
}

void MetricsLog::Restored(uint64_t step, double loss) {
  Write({{"step", step}, {"loss", loss}, {"restored", true}});
  if (!events_) return;
  const report::EventScalar scalars[] = {{"loss", loss}};
  events_->Write(step, scalars);
}

void MetricsLog::Write(const nlohmann::ordered_json& line) {
  const bool written = std::fputs(JsonLine(line).c_str(), file_) >= 0 && std::fflush(file_) == 0;
  if (written || std::exchange(warned_, true)) return;
  spdlog::warn("metrics.jsonl: lines are missing: {}", std::strerror(errno));
}

std::string JsonLine(const nlohmann::ordered_json& json) { return json_text::Write(json) + "\n"; }

absl::Status WritePicture(const std::string& path, const std::string& text) {
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary);
  file << text;
  file.close();
  if (!file) return absl::DataLossError(absl::StrCat(partial, ": cannot be written"));
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (error) return absl::DataLossError(absl::StrCat(path, ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace trireme::worker
