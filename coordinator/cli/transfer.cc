#include "coordinator/cli/transfer.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "coordinator/cli/job_text.h"
#include "runtime/base/text.h"
#include "runtime/report/plan_view.h"

namespace trireme::cli {

absl::StatusOr<std::string> AbsoluteFolder(const std::string& option, const std::string& given) {
  if (given.empty()) return given;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(given, error);
  if (error) {
    return absl::InvalidArgumentError(base::Text(option, " ", given, ": ", error.message()));
  }
  std::string folder = absolute.lexically_normal().string();
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

TransferLine::TransferLine(bool wanted) : shown_(wanted && isatty(STDERR_FILENO) == 1) {}

TransferLine::~TransferLine() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void TransferLine::Show(const std::string& what, uint64_t done, uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  std::string text = what + ": " + report::ReadableBytes(done);
  if (total > 0) {
    const double percent = 100 * static_cast<double>(done) / static_cast<double>(total);
    text +=
        base::Text(" of ", report::ReadableBytes(total), " (", static_cast<int>(percent), " %)");
  }
  std::fprintf(stderr, "\r%s\x1b[K", Shown(text).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace trireme::cli
