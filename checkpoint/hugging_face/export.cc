// One tensor after another through a buffer of some rows; the reader gives any interval of a tensor
// whatever ranks hold it.
#include "checkpoint/hugging_face/export.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/client/disk.h"
#include "checkpoint/hugging_face/config_json.h"
#include "checkpoint/hugging_face/family_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/json/json_text.h"
#include "runtime/safetensors/safetensors.h"
#include "runtime/spec/job_spec.h"

namespace trireme::checkpoint {
namespace {

using base::Text;

constexpr uint64_t kBufferBytes = uint64_t{16} << 20;

struct Tensor {
  ExportedTensor exported;
  tensor::DType dtype = tensor::DType::kF32;
  int64_t elements = 0;  // without padding
  uint64_t bytes() const { return static_cast<uint64_t>(elements) * tensor::SizeOf(dtype); }
};

// Removes the folder unless it was published.
class UnfinishedFolder {
 public:
  static absl::StatusOr<UnfinishedFolder> Make(const std::string& final_path) {
    const std::filesystem::path path(final_path);
    UnfinishedFolder folder;
    folder.final_ = final_path;
    folder.path_ = Text(path.parent_path().string(), "/.", path.filename().string(), ".export");
    if (path.filename().empty()) {
      return absl::InvalidArgumentError(Text("'", final_path, "' names no folder"));
    }
    if (Exists(final_path)) return folder.Taken();
    // What an export that was killed has left.
    RETURN_IF_ERROR(RemoveAll(folder.path_));
    if (mkdir(folder.path_.c_str(), 0777) != 0) {
      const int error = errno;
      const std::string above = path.parent_path().string();
      folder.path_.clear();
      if (error != ENOENT) return base::ErrnoStatus(error, Text(final_path, ": cannot be made"));
      return absl::NotFoundError(Text(above, ": there is no such folder; make it first"));
    }
    return folder;
  }
  UnfinishedFolder(UnfinishedFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), final_(std::move(other.final_)) {}
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  ~UnfinishedFolder() {
    if (!path_.empty()) RemoveAll(path_).IgnoreError();
  }

  const std::string& path() const { return path_; }
  absl::Status Publish() {
    RETURN_IF_ERROR(SyncFolder(path_));
    if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, final_.c_str(), RENAME_NOREPLACE) != 0) {
      if (errno == EEXIST) return Taken();
      // Not every file system has it.
      if (errno != EINVAL && errno != ENOSYS) return DiskError(final_, "cannot be named", errno);
      if (Exists(final_)) return Taken();
      if (std::rename(path_.c_str(), final_.c_str()) != 0) {
        return DiskError(final_, "cannot be named", errno);
      }
    }
    path_.clear();
    return SyncFolder(std::filesystem::path(final_).parent_path().string());
  }

 private:
  UnfinishedFolder() = default;
  absl::Status Taken() const {
    return absl::AlreadyExistsError(
        Text(final_, ": exists already; name another folder, or remove it"));
  }
  std::string path_;
  std::string final_;
};

absl::StatusOr<v1::ModelConfig> ModelOf(const Checkpoint& checkpoint) {
  const std::string where = checkpoint.folder() + "/" + std::string(kManifestName);
  const auto job = spec::ParseEcho(checkpoint.info().job_yaml, where);
  if (!job.ok()) {
    return absl::FailedPreconditionError(
        Text(where, ": the job in it cannot be read: ", base::MessageOf(job.status())));
  }
  v1::ModelConfig model = job->model().config();
  // Of a job that has left it to its tokenizer the embedding has as many rows as tokens.
  for (const ShardEntry& shard : checkpoint.manifest().shards) {
    const bool embedding = shard.name == "wte.weight" || shard.name == "model.embed_tokens.weight";
    if (model.vocab_size() == 0 && embedding && !shard.shape.empty()) {
      model.set_vocab_size(shard.shape.front());
    }
  }
  return model;
}

absl::StatusOr<std::vector<Tensor>> TensorsOf(const Checkpoint& checkpoint,
                                              const v1::ModelConfig& model) {
  std::map<std::string, const ShardEntry*> stored;
  for (const ShardEntry& shard : checkpoint.manifest().shards) {
    if (shard.kind == "parameter") stored.try_emplace(shard.name, &shard);
  }
  ASSIGN_OR_RETURN(const std::vector<ExportedTensor> exported, ExportedTensors(model));
  std::vector<Tensor> tensors;
  for (const ExportedTensor& wanted : exported) {
    const auto found = stored.find(wanted.name);
    const std::vector<int64_t> none;
    std::vector<int64_t> shape = found == stored.end() ? none : found->second->shape;
    const bool padded = wanted.of_vocabulary && shape.size() == wanted.shape.size() &&
                        !shape.empty() && shape.front() > wanted.shape.front();
    if (padded) shape.front() = wanted.shape.front();
    if (found == stored.end() || shape != wanted.shape) {
      return absl::FailedPreconditionError(
          Text(checkpoint.folder(), ": parameter '", wanted.name, "' is ",
               found == stored.end() ? "not there" : "of another shape than its model has it"));
    }
    Tensor& tensor = tensors.emplace_back();
    tensor.exported = wanted;
    tensor.exported.shape = found->second->shape;
    tensor.dtype = found->second->dtype;
    tensor.elements = layout::Box::Whole(shape).elements();
  }
  return tensors;
}

void LookAt(const ExportOptions& options, const std::string& path) {
  if (options.looks_at) options.looks_at(path);
}

class Exporter {
 public:
  Exporter(const Checkpoint& checkpoint, const ExportOptions& options, std::string folder)
      : checkpoint_(checkpoint), options_(options), folder_(std::move(folder)) {}

  absl::Status Write(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) total_ += tensor.bytes();
    RETURN_IF_ERROR(Tell());
    std::vector<std::vector<Tensor>> files(1);
    uint64_t bytes = 0;
    for (const Tensor& tensor : tensors) {
      if (bytes > 0 && bytes + tensor.bytes() > options_.most_file_bytes) {
        files.emplace_back();
        bytes = 0;
      }
      bytes += tensor.bytes();
      files.back().push_back(tensor);
    }
    if (files.size() == 1) return WriteFile("model.safetensors", files.front());
    std::map<std::string, std::string> index;
    for (size_t i = 0; i < files.size(); ++i) {
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
      RETURN_IF_ERROR(WriteFile(name, files[i]));
      for (const Tensor& tensor : files[i]) index[tensor.exported.exported_name] = name;
    }
    const nlohmann::ordered_json json{{"metadata", {{"total_size", total_}}},
                                      {"weight_map", index}};
    return WriteDurably(folder_ + "/model.safetensors.index.json",
                        json_text::Write(json, 2) + "\n");
  }

 private:
  absl::Status Tell() const {
    return options_.progress ? options_.progress(done_, total_) : absl::OkStatus();
  }

  absl::Status WriteFile(const std::string& name, const std::vector<Tensor>& tensors) {
    std::vector<safetensors::TensorSpec> specs;
    for (const Tensor& tensor : tensors) {
      specs.push_back({tensor.exported.exported_name, safetensors::FromDType(tensor.dtype),
                       tensor.exported.exported_shape});
    }
    ASSIGN_OR_RETURN(safetensors::Writer writer,
                     safetensors::Writer::Create(folder_ + "/" + name, std::move(specs)));
    for (const Tensor& tensor : tensors) RETURN_IF_ERROR(Copy(tensor, writer));
    return writer.Finish();
  }

  absl::Status Copy(const Tensor& tensor, safetensors::Writer& writer) {
    const auto width = static_cast<int64_t>(tensor::SizeOf(tensor.dtype));
    const int64_t most = static_cast<int64_t>(kBufferBytes) / width;
    for (int64_t begin = 0; begin < tensor.elements; begin += most) {
      const int64_t end = std::min(tensor.elements, begin + most);
      buffer_.resize(static_cast<size_t>((end - begin) * width));
      StateShard target;
      target.name = tensor.exported.name;
      target.kind = "parameter";
      target.dtype = tensor.dtype;
      target.shape = tensor.exported.shape;
      target.shard = {layout::Box::Whole(target.shape), {begin, end}};
      target.data = buffer_;
      LookAt(options_, checkpoint_.folder());
      RETURN_IF_ERROR(checkpoint_.Restore({&target, 1}));
      LookAt(options_, options_.folder);
      RETURN_IF_ERROR(writer.Append(tensor.exported.exported_name, buffer_));
      done_ += buffer_.size();
      RETURN_IF_ERROR(Tell());
    }
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const ExportOptions& options_;
  const std::string folder_;
  std::vector<std::byte> buffer_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

absl::Status ExportCheckpoint(const Checkpoint& checkpoint, const ExportOptions& options) {
  ASSIGN_OR_RETURN(const v1::ModelConfig model, ModelOf(checkpoint));
  ASSIGN_OR_RETURN(const std::vector<Tensor> tensors, TensorsOf(checkpoint, model));
  LookAt(options, options.folder);
  ASSIGN_OR_RETURN(UnfinishedFolder folder, UnfinishedFolder::Make(options.folder));
  RETURN_IF_ERROR(
      WriteDurably(folder.path() + "/config.json", ConfigJson(model, tensors.front().dtype)));
  RETURN_IF_ERROR(Exporter(checkpoint, options, folder.path()).Write(tensors));
  return folder.Publish();
}

}  // namespace trireme::checkpoint
