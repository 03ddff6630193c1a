// Chunked reading; a character that straddles two chunks is carried over.
#include "runtime/data/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"

namespace trireme::data {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// It is read more than once and to its end, which pipes and devices do not allow.
absl::Status NotAFile(const std::string& path, mode_t mode) {
  const char* kind = S_ISDIR(mode) ? "a folder" : "a pipe, device or socket";
  return absl::InvalidArgumentError(
      fmt::format("text file {} is {}, expected a regular file", path, kind));
}

// Its bytes.
absl::StatusOr<uint64_t> Open(const std::string& path, base::Links links, Descriptor& file) {
  // O_NONBLOCK: the open of a pipe must not wait for its writer. Files do not hear it.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  file.fd = links == base::Links::kFollow ? open(path.c_str(), kFlags)
                                          : base::OpenWithoutLinks(path, kFlags);
  if (file.fd < 0) return FileError(path, errno);
  struct stat about {};
  if (fstat(file.fd, &about) != 0) return FileError(path, errno);
  if (!S_ISREG(about.st_mode)) return NotAFile(path, about.st_mode);
  return static_cast<uint64_t>(about.st_size);
}

}  // namespace

absl::Status FileError(const std::string& path, int error) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::absolute(path, ignored);
  const std::string message = fmt::format(
      "text file {}: {}", ignored ? path : whole.lexically_normal().string(), std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message +
                                 "; paths in a job file are taken from its folder, those of --set "
                                 "from the current one");
    case ELOOP:
      return absl::FailedPreconditionError(
          message +
          "; a link is on the way, though the job was submitted with the real path: submit it anew "
          "(all nodes must have it by the same real path)");
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
      return absl::FailedPreconditionError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::Status EmptyFile(const std::string& path) {
  return absl::InvalidArgumentError(fmt::format("text file {} is empty", path));
}

absl::StatusOr<uint64_t> LengthOf(const std::string& path, base::Links links) {
  Descriptor file;
  return Open(path, links, file);
}

absl::Status ReadChunks(const std::string& path, base::Links links,
                        const std::function<absl::Status(std::string_view)>& visit) {
  Descriptor file;
  RETURN_IF_ERROR(Open(path, links, file).status());
  std::string chunk(kChunkBytes, '\0');
  bool empty = true;
  while (true) {
    const ssize_t got = read(file.fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path, errno);
    if (got == 0) break;
    empty = false;
    RETURN_IF_ERROR(visit(std::string_view(chunk.data(), static_cast<size_t>(got))));
  }
  return empty ? EmptyFile(path) : absl::OkStatus();
}

absl::Status ReadCodePoints(const std::string& path, base::Links links,
                            const std::function<absl::Status(std::u32string_view)>& visit) {
  const auto invalid = [&](uint64_t offset, const char* what) {
    return absl::InvalidArgumentError(
        fmt::format("text file {}: {} at byte {}; convert it to UTF-8, or set data.tokenizer to "
                    "byte, which takes any file",
                    path, what, offset));
  };
  std::u32string characters;
  characters.reserve(kChunkBytes + 4);
  std::string carry;    // the begun character at the end of the last chunk, at most 3 bytes
  uint64_t offset = 0;  // of carry's first byte, else of the next chunk
  RETURN_IF_ERROR(ReadChunks(path, links, [&](std::string_view chunk) -> absl::Status {
    characters.clear();
    uint32_t code_point = 0;
    while (!carry.empty() && !chunk.empty()) {
      carry.push_back(chunk.front());
      chunk.remove_prefix(1);
      const int length = base::DecodeUtf8(carry, code_point);
      if (length == base::kUtf8Incomplete) continue;
      if (length == base::kUtf8Invalid) return invalid(offset, "invalid UTF-8");
      characters.push_back(code_point);
      offset += static_cast<uint64_t>(length);
      carry.clear();
    }
    while (!chunk.empty()) {
      const int length = base::DecodeUtf8(chunk, code_point);
      if (length == base::kUtf8Invalid) return invalid(offset, "invalid UTF-8");
      if (length == base::kUtf8Incomplete) {
        carry = chunk;
        break;
      }
      characters.push_back(code_point);
      chunk.remove_prefix(static_cast<size_t>(length));
      offset += static_cast<uint64_t>(length);
    }
    return characters.empty() ? absl::OkStatus() : visit(characters);
  }));
  if (!carry.empty()) return invalid(offset, "the file ends inside a UTF-8 character");
  return absl::OkStatus();
}

}  // namespace trireme::data
