// Writing files: the plan of all offsets is made first, so tensors may then come in any order.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "runtime/base/durable.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/json/json_text.h"
#include "runtime/safetensors/safetensors.h"

namespace trireme::safetensors {
namespace {

absl::Status WriteAt(int fd, std::string_view path, std::span<const std::byte> bytes,
                     uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t done = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return base::DiskError(path, "cannot be written", errno);
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
  return absl::OkStatus();
}

// A JSON string; false if the bytes are not UTF-8.
bool Quote(const std::string& text, std::string* quoted) {
  auto written = json_text::WriteUnchanged(text);
  if (!written.has_value()) return false;
  *quoted = *std::move(written);
  return true;
}

absl::Status PlanOffsets(std::vector<TensorSpec> tensors, Plan* plan) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return a.element != b.element ? a.element > b.element : a.name < b.name;
  });
  uint64_t at = 0;
  for (TensorSpec& spec : tensors) {
    if (spec.name == "__metadata__") {
      return absl::InvalidArgumentError("a tensor cannot be named __metadata__");
    }
    uint64_t bytes = SizeOf(spec.element);
    bool fits = true;
    for (int64_t extent : spec.shape) {
      fits = fits && extent >= 0 &&
             !__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes);
    }
    if (!fits || bytes > INT64_MAX - at) {
      return absl::InvalidArgumentError(base::Text("tensor '", spec.name, "': shape [",
                                                   absl::StrJoin(spec.shape, ","),
                                                   "] is negative or overflows a file"));
    }
    if (!plan->header.index.emplace(spec.name, plan->header.tensors.size()).second) {
      return absl::InvalidArgumentError(base::Text("tensor '", spec.name, "' is there twice"));
    }
    plan->header.tensors.push_back(
        {std::move(spec.name), spec.element, std::move(spec.shape), at, bytes});
    at += bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> HeaderText(const Plan& plan, const Metadata& metadata) {
  std::string text = "{\"__metadata__\":{";
  std::string quoted;
  std::string_view comma;
  for (const auto& [key, value] : metadata) {
    std::string quoted_value;
    if (!Quote(key, &quoted) || !Quote(value, &quoted_value)) {
      return absl::InvalidArgumentError("metadata is not UTF-8");
    }
    text += base::Text(comma, quoted, ":", quoted_value);
    comma = ",";
  }
  text += "}";
  for (const TensorInfo& tensor : plan.header.tensors) {
    if (!Quote(tensor.name, &quoted)) {
      return absl::InvalidArgumentError("a tensor's name is not UTF-8");
    }
    text += base::Text(",", quoted, ":{\"dtype\":\"", NameOf(tensor.element), "\",\"shape\":[",
                       absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", tensor.offset, ",",
                       tensor.offset + tensor.bytes, "]}");
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        base::Text("the header has ", text.size(), " bytes, the limit is ", kMaxHeaderBytes));
  }
  return text;
}

}  // namespace

Metadata DefaultMetadata() { return {{"format", "pt"}}; }

absl::StatusOr<Plan> PlanFile(std::vector<TensorSpec> tensors, const Metadata& metadata) {
  Plan plan;
  RETURN_IF_ERROR(PlanOffsets(std::move(tensors), &plan));
  ASSIGN_OR_RETURN(const std::string text, HeaderText(plan, metadata));
  for (int i = 0; i < 8; ++i) plan.prefix += static_cast<char>(text.size() >> (8 * i) & 0xff);
  plan.prefix += text;
  plan.header.metadata = metadata;
  plan.header.data_offset = plan.file_bytes = plan.prefix.size();
  for (TensorInfo& tensor : plan.header.tensors) {
    tensor.offset += plan.header.data_offset;
    plan.file_bytes += tensor.bytes;
  }
  return plan;
}

absl::StatusOr<Writer> Writer::Create(const std::string& path, std::vector<TensorSpec> tensors,
                                      const Metadata& metadata) {
  Writer writer;
  writer.path_ = path;
  auto plan = PlanFile(std::move(tensors), metadata);
  if (!plan.ok()) return base::Annotate(plan.status(), path);
  writer.plan_ = *std::move(plan);
  writer.written_.resize(writer.plan_.header.tensors.size());
  const std::string partial = path + ".partial";
  writer.fd_ = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (writer.fd_ < 0) return base::DiskError(partial, "cannot be created", errno);
  RETURN_IF_ERROR(
      WriteAt(writer.fd_, path, std::as_bytes(std::span<const char>(writer.plan_.prefix)), 0));
  return writer;
}

Writer::Writer(Writer&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      plan_(std::move(other.plan_)),
      written_(std::move(other.written_)) {}

Writer& Writer::operator=(Writer&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(plan_, other.plan_);
  std::swap(written_, other.written_);
  return *this;
}

Writer::~Writer() { Discard(); }

void Writer::Discard() {
  if (fd_ < 0) return;
  close(std::exchange(fd_, -1));
  unlink((path_ + ".partial").c_str());
}

absl::Status Writer::Append(std::string_view name, std::span<const std::byte> chunk) {
  if (fd_ < 0) return absl::FailedPreconditionError(base::Text(path_, ": already finished"));
  const auto found = plan_.header.index.find(name);
  if (found == plan_.header.index.end()) {
    return absl::NotFoundError(base::Text(path_, ": no tensor '", name, "' was planned"));
  }
  const TensorInfo& tensor = plan_.header.tensors[found->second];
  uint64_t& written = written_[found->second];
  if (chunk.size() > tensor.bytes - written) {
    return absl::InvalidArgumentError(base::Text(path_, ": tensor '", name, "' was planned with ",
                                                 tensor.bytes, " bytes, got ",
                                                 written + chunk.size()));
  }
  RETURN_IF_ERROR(WriteAt(fd_, path_, chunk, tensor.offset + written));
  written += chunk.size();
  return absl::OkStatus();
}

absl::Status Writer::Finish() {
  if (fd_ < 0) return absl::FailedPreconditionError(base::Text(path_, ": already finished"));
  for (size_t i = 0; i < written_.size(); ++i) {
    const TensorInfo& tensor = plan_.header.tensors[i];
    if (written_[i] != tensor.bytes) {
      return absl::FailedPreconditionError(base::Text(path_, ": tensor '", tensor.name, "' has ",
                                                      written_[i], " of ", tensor.bytes, " bytes"));
    }
  }
  const std::string partial = path_ + ".partial";
  if (fsync(fd_) != 0) return base::DiskError(partial, "cannot be flushed", errno);
  if (rename(partial.c_str(), path_.c_str()) != 0)
    return base::DiskError(path_, "cannot be named", errno);
  close(std::exchange(fd_, -1));
  return base::SyncFolderOf(path_);
}

}  // namespace trireme::safetensors
