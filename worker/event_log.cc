// TensorBoard reads the files of a folder in the order of their names, which begin with the time.
#include "worker/event_log.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"

namespace trireme::worker {
namespace {

constexpr const char* kPrefix = "events.out.tfevents.";

double WallTime() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Cuts what is of later steps, or torn, off the files there are; the latest time in their names.
int64_t CutFiles(const std::string& folder, uint64_t keep_through) {
  int64_t latest = 0;
  base::VisitNames(folder, [&](const std::string& name) {
    if (!name.starts_with(kPrefix)) return;
    latest = std::max<int64_t>(latest, std::atoll(name.c_str() + std::strlen(kPrefix)));
    const std::string path = folder + "/" + name;
    const absl::StatusOr<std::string> bytes = base::ReadWholeFile(path, SIZE_MAX);
    if (!bytes.ok()) {
      spdlog::warn("{}; steps that it has may be shown twice", base::MessageOf(bytes.status()));
      return;
    }
    const size_t kept = report::EventBytesThrough(*bytes, keep_through);
    std::error_code ignored;
    if (kept < bytes->size()) std::filesystem::resize_file(path, kept, ignored);
  }).IgnoreError();
  return latest;
}

}  // namespace

absl::StatusOr<EventLog> EventLog::Open(const std::string& folder, uint64_t keep_through) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const double now = WallTime();
  const int64_t latest = CutFiles(folder, keep_through);
  const int64_t time = std::max(static_cast<int64_t>(now), latest + 1);
  const std::string path =
      absl::StrCat(folder, "/", kPrefix, time, ".", base::HostName(), ".", getpid());
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  if (file == nullptr) {
    return absl::DataLossError(absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
  }
  std::string head = report::EventFileHead(now);
  // Also for what an attempt that this one has replaced may yet write behind the cut.
  if (latest > 0) head += report::SessionStartEvent(now, keep_through + 1);
  std::fwrite(head.data(), 1, head.size(), file);
  std::fflush(file);
  return EventLog(file);
}

EventLog::EventLog(EventLog&& other) noexcept : file_(std::exchange(other.file_, nullptr)) {}

EventLog::~EventLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void EventLog::Write(uint64_t step, std::span<const report::EventScalar> scalars) {
  if (file_ == nullptr) return;
  const std::string record = report::ScalarEvent(WallTime(), step, scalars);
  const size_t written = std::fwrite(record.data(), 1, record.size(), file_);
  if (written == record.size() && std::fflush(file_) == 0) return;
  std::fclose(std::exchange(file_, nullptr));
}

}  // namespace trireme::worker
