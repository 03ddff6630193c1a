// Mapped files, and folders of them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "nlohmann/json.hpp"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/json/json_text.h"
#include "runtime/safetensors/safetensors.h"

namespace trireme::safetensors {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

// Maps the whole file for reading.
absl::StatusOr<std::span<const std::byte>> Map(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, base::Text(path, ": cannot open"));
  struct stat info {};
  absl::Status status;
  std::span<const std::byte> mapped;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError(base::Text(path, ": not a regular file"));
  } else if (info.st_size > 0) {
    const auto bytes = static_cast<size_t>(info.st_size);
    void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
      status = absl::ErrnoToStatus(errno, base::Text(path, ": cannot map"));
    } else {
      mapped = {static_cast<const std::byte*>(memory), bytes};
    }
  }
  close(fd);
  if (!status.ok()) return status;
  return mapped;
}

void Unmap(std::span<const std::byte> mapped) {
  if (!mapped.empty()) munmap(const_cast<std::byte*>(mapped.data()), mapped.size());
}

// Tensor to file name, as the index says it.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  const Json json = json_text::Parse(text.str());
  if (!in || !json.is_object()) {
    return absl::InvalidArgumentError(base::Text(path, ": cannot be read as a JSON object"));
  }
  const auto weights = json.find("weight_map");
  if (weights == json.end() || !weights->is_object()) {
    return absl::InvalidArgumentError(base::Text(path, ": has no object weight_map"));
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : weights->items()) {
    if (!file.is_string()) {
      return absl::InvalidArgumentError(
          base::Text(path, ": weight_map '", tensor, "' is not a file name"));
    }
    const auto name = file.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find("..") != std::string::npos) {
      return absl::InvalidArgumentError(base::Text(path, ": weight_map '", tensor, "' names file '",
                                                   name, "', expected a plain name in the folder"));
    }
    files[tensor] = name;
  }
  return files;
}

}  // namespace

absl::StatusOr<File> File::Open(const std::string& path) {
  File file;
  file.path_ = path;
  ASSIGN_OR_RETURN(file.mapped_, Map(path));
  ASSIGN_OR_RETURN(file.header_, ParseHeader(file.mapped_, file.mapped_.size(), path));
  return file;
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      mapped_(std::exchange(other.mapped_, {})),
      header_(std::move(other.header_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(mapped_, other.mapped_);
  std::swap(header_, other.header_);
  return *this;
}

File::~File() { Unmap(mapped_); }

absl::StatusOr<std::span<const std::byte>> File::Data(std::string_view name) const {
  const TensorInfo* tensor = Find(name);
  if (tensor == nullptr) {
    return absl::NotFoundError(base::Text(path_, ": has no tensor '", name, "'"));
  }
  return Data(*tensor);
}

std::span<const std::byte> File::Data(const TensorInfo& tensor) const {
  return mapped_.subspan(tensor.offset, tensor.bytes);
}

absl::StatusOr<Folder> Folder::Open(const std::string& folder) {
  const std::string index_path = base::Text(folder, "/", kIndexName);
  const bool sharded = access(index_path.c_str(), F_OK) == 0;
  std::map<std::string, std::string> promised;  // Tensor to file name.
  std::map<std::string, const File*> files;
  if (sharded) {
    ASSIGN_OR_RETURN(promised, ReadIndex(index_path));
    for (const auto& [tensor, name] : promised) files[name] = nullptr;
  } else {
    files[std::string(kSingleName)] = nullptr;
  }
  Folder opened;
  for (auto& [name, pointer] : files) {
    ASSIGN_OR_RETURN(File file, File::Open(base::Text(folder, "/", name)));
    opened.files_.push_back(std::make_unique<File>(std::move(file)));
    pointer = opened.files_.back().get();
    for (const TensorInfo& tensor : pointer->header().tensors) {
      const auto [at, fresh] = opened.tensors_.emplace(tensor.name, Entry{pointer, &tensor});
      if (!fresh) {
        return absl::InvalidArgumentError(base::Text("tensor '", tensor.name, "' is in ",
                                                     at->second.file->path(), " and in ",
                                                     pointer->path()));
      }
    }
  }
  for (const auto& [tensor, name] : promised) {
    const auto found = opened.tensors_.find(tensor);
    if (found == opened.tensors_.end() || found->second.file != files[name]) {
      return absl::InvalidArgumentError(base::Text(index_path, ": promises tensor '", tensor,
                                                   "' in ", name, ", which does not hold it"));
    }
  }
  return opened;
}

Folder::Entry Folder::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? Entry{} : found->second;
}

}  // namespace trireme::safetensors
