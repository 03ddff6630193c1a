#include "runtime/run_claim/run_claim.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"
#include "runtime/json/json_text.h"

namespace trireme::run_claim {
namespace {

constexpr int kVersion = 1;

std::string PathIn(const std::string& run_folder) { return run_folder + "/claim.json"; }

}  // namespace

absl::Status WriteRunClaim(const std::string& run_folder, const RunClaim& claim) {
  const nlohmann::json text = {{"version", kVersion},
                               {"job", claim.job},
                               {"attempt", claim.attempt},
                               {"store", claim.store}};
  return base::WriteWholeFile(PathIn(run_folder), json_text::Write(text, 1) + "\n");
}

absl::StatusOr<RunClaim> ReadRunClaim(const std::string& run_folder) {
  const std::string path = PathIn(run_folder);
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  const absl::Status no_claim = absl::DataLossError(base::Text(path, " is no claim; remove it"));
  if (fd < 0 && (errno == ELOOP || errno == ENXIO)) return no_claim;
  if (fd < 0) return absl::ErrnoToStatus(errno, base::Text("cannot read ", path));
  struct stat about {};
  std::array<char, 4096> text;  // a few lines
  const bool plain = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  const ssize_t got = plain ? pread(fd, text.data(), text.size(), 0) : 0;
  const int error = errno;
  close(fd);
  if (got < 0) return absl::ErrnoToStatus(error, base::Text("cannot read ", path));
  const auto said = json_text::Parse(std::string_view(text.data(), static_cast<size_t>(got)));
  try {
    return RunClaim{said.at("job").get<uint64_t>(), said.at("attempt").get<uint32_t>(),
                    said.at("store").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return no_claim;
  }
}

absl::Status CheckRunClaim(const std::string& run_folder, uint32_t attempt) {
  const absl::StatusOr<RunClaim> claim = ReadRunClaim(run_folder);
  if (absl::IsNotFound(claim.status())) return absl::OkStatus();
  RETURN_IF_ERROR(claim.status());
  if (claim->attempt <= attempt) return absl::OkStatus();
  return absl::FailedPreconditionError(
      base::Text("attempt ", claim->attempt, " of the job has replaced attempt ", attempt, ", as ",
                 PathIn(run_folder), " says: this one publishes nothing more"));
}

}  // namespace trireme::run_claim
