#include "coordinator/run_files/run_owner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/json/json_text.h"

namespace trireme::coordinator {

absl::StatusOr<RunOwner> ReadRunOwner(const std::string& run_folder) {
  const std::string path = run_folder + "/run.json";
  const absl::Status unsaid =
      absl::InvalidArgumentError(path + " does not say whose run folder this is");
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && (errno == ELOOP || errno == ENXIO)) return unsaid;
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot read " + path);
  struct stat about {};
  std::array<char, 4096> text;  // a few lines
  const bool plain = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  const ssize_t got = plain ? pread(fd, text.data(), text.size(), 0) : 0;
  const int error = errno;
  close(fd);
  if (got < 0) return absl::ErrnoToStatus(error, "cannot read " + path);
  const auto said = json_text::Parse(std::string_view(text.data(), static_cast<size_t>(got)));
  try {
    return RunOwner{said.at("job").get<uint64_t>(), said.at("store").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return unsaid;
  }
}

absl::Status CheckRunOwner(const v1::Job& job, const std::string& store) {
  const absl::StatusOr<RunOwner> owner = ReadRunOwner(job.run_folder());
  if (absl::IsNotFound(owner.status())) return absl::OkStatus();
  if (!owner.ok() && !absl::IsInvalidArgument(owner.status())) return owner.status();
  if (owner.ok() && owner->job == job.id() && owner->store == store) return absl::OkStatus();
  return absl::NotFoundError(fmt::format(
      "what lies in {} is another job's, as run.json there says: nothing of it is job {}'s",
      job.run_folder(), job.id()));
}

}  // namespace trireme::coordinator
