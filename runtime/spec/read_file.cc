#include "runtime/spec/read_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace trireme::spec {

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t limit_bytes) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::InvalidArgumentError("no such file; check the path");
  }
  if (error) return absl::InvalidArgumentError(absl::StrCat("cannot be read: ", error.message()));
  if (std::filesystem::is_directory(status)) {
    return absl::InvalidArgumentError("is a folder, expected a file");
  }
  if (!std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError("is a device, pipe or socket, expected a file");
  }
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return absl::InvalidArgumentError(absl::StrCat("cannot be opened: ", std::strerror(errno)));
  }
  // One byte more than allowed tells a file that is too large, even one that grows meanwhile.
  std::string text(limit_bytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot be read: ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > limit_bytes) {
    const auto size = std::filesystem::file_size(path, error);
    return absl::InvalidArgumentError(absl::StrCat("has ", size, " bytes, more than the limit of ",
                                                   limit_bytes, "; is this the right file?"));
  }
  return text;
}

}  // namespace trireme::spec
