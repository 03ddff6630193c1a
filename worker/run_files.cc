#include "worker/run_files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace trireme::worker {

namespace {

// The step of a line of metrics.jsonl; every line begins {"step":N,
uint64_t StepOf(const std::string& line) {
  uint64_t step = 0;
  return std::sscanf(line.c_str(), "{\"step\":%lu", &step) == 1 ? step : 0;
}

// A number that is not finite is null: JSON has no NaN.
std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return value - value == 0 ? text : "null";
}

}  // namespace

absl::StatusOr<MetricsLog> MetricsLog::Open(const std::string& path, uint64_t keep_through) {
  std::string kept;
  std::ifstream old(path);
  for (std::string line; std::getline(old, line);) {
    if (StepOf(line) <= keep_through) absl::StrAppend(&kept, line, "\n");
  }
  RETURN_IF_ERROR(WriteFile(path, kept));
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) {
    return absl::DataLossError(absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
  }
  return MetricsLog(file);
}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept : file_(std::exchange(other.file_, nullptr)) {}

MetricsLog::~MetricsLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void MetricsLog::Step(const StepMetrics& metrics) {
  const std::string line =
      absl::StrCat("{\"step\":", metrics.step, ",\"loss\":", Number(metrics.loss),
                   ",\"learning_rate\":", Number(metrics.learning_rate),
                   ",\"gradient_norm\":", Number(metrics.gradient_norm),
                   ",\"tokens_per_second\":", Number(metrics.tokens_per_second),
                   ",\"step_time_ms\":", Number(metrics.step_time_ms),
                   ",\"utilisation\":", Number(metrics.utilisation),
                   ",\"exposed_communication_ms\":", Number(metrics.exposed_communication_ms),
                   metrics.skipped ? ",\"skipped\":true}\n" : "}\n");
  std::fputs(line.c_str(), file_);
  std::fflush(file_);
}

void MetricsLog::Validation(uint64_t step, double loss) {
  std::fprintf(file_, "{\"step\":%lu,\"validation_loss\":%s}\n", step, Number(loss).c_str());
  std::fflush(file_);
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
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
