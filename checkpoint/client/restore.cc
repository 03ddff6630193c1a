// What every target wants is sorted by stored shard first, so that each part is read upwards and
// each piece once, however the targets cut the tensors.
#include "checkpoint/client/restore.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/tensor/element.h"

namespace trireme::checkpoint {
namespace {

using base::Text;

constexpr size_t kStagingBytes = size_t{1} << 16;

std::string Describe(std::string_view kind, std::string_view name) {
  return Text(kind, " '", name, "'");
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) text += Text(d == 0 ? "" : ",", shape[d]);
  return text + "]";
}

// `length` elements of a stored shard that go to one place of one target.
struct Run {
  int64_t source;
  int64_t length;
  std::byte* target;
  const StateMover* mover;  // of the target; null: it is here
  tensor::DType dtype;
};

// Whether what is stored may be read as `wanted`. Weights in bf16 are the masters rounded, which
// are read too.
bool MayRead(tensor::DType stored, const StateShard& target, bool allow_narrowing) {
  using tensor::DType;
  if (stored == target.dtype) return true;
  if (stored == DType::kF32 && target.dtype == DType::kF64) return true;
  if (stored == DType::kF32 && target.dtype == DType::kBf16) return target.kind == "parameter";
  const bool real = target.dtype == DType::kF32 || target.dtype == DType::kBf16;
  return stored == DType::kF64 && real && allow_narrowing;
}

class Restorer {
 public:
  Restorer(const StateSource& source, const RestoreOptions& options)
      : source_(source), options_(options), shards_(source.shards()) {
    for (const StoredShard& entry : shards_) stored_[{entry.kind, entry.name}].push_back(&entry);
  }

  // Finds the stored shards that hold something of `target`.
  absl::Status Plan(const StateShard& target) {
    RETURN_IF_ERROR(CheckTarget(target));
    const auto found = stored_.find({target.kind, target.name});
    if (found == stored_.end()) return NoSuchTensor(target);
    const StoredShard& first = *found->second.front();
    const std::string what = Describe(target.kind, target.name);
    if (*first.shape != target.shape) {
      return absl::FailedPreconditionError(Text(source_.where(), ": ", what, " has shape ",
                                                ShapeText(*first.shape), ", the job wants ",
                                                ShapeText(target.shape)));
    }
    const bool narrows = tensor::SizeOf(first.dtype) > tensor::SizeOf(target.dtype);
    if (!MayRead(first.dtype, target, options_.allow_narrowing)) {
      return absl::FailedPreconditionError(
          Text(source_.where(), ": ", what, " is ", tensor::NameOf(first.dtype), ", the job wants ",
               tensor::NameOf(target.dtype), narrows ? "; rounding was not allowed" : ""));
    }
    for (const StoredShard* entry : found->second) AddRuns(*entry, target);
    return absl::OkStatus();
  }

  absl::Status ReadAll() {
    for (auto& [part, entries] : wanted_) RETURN_IF_ERROR(ReadPart(part, entries));
    return absl::OkStatus();
  }

 private:
  using Entries = std::map<const StoredShard*, std::vector<Run>>;

  static absl::Status CheckTarget(const StateShard& target) {
    const std::string what = Describe(target.kind, target.name);
    if (absl::Status status = layout::CheckShard(target.shape, target.shard); !status.ok()) {
      return absl::InvalidArgumentError(Text(what, ": ", base::MessageOf(status)));
    }
    const auto elements = static_cast<uint64_t>(target.shard.elements());
    if (target.data.size() != elements * tensor::SizeOf(target.dtype)) {
      return absl::InvalidArgumentError(Text(what, ": room for ", target.data.size(),
                                             " bytes is given, ", elements, " elements of ",
                                             tensor::NameOf(target.dtype), " are wanted"));
    }
    return absl::OkStatus();
  }

  absl::Status NoSuchTensor(const StateShard& target) const {
    // The stored name with the longest common beginning is the likeliest relative.
    const std::string_view* nearest = nullptr;
    size_t longest = 0;
    size_t of_kind = 0;
    for (const auto& [key, entries] : stored_) {
      if (key.first != target.kind) continue;
      ++of_kind;
      const auto apart = std::mismatch(key.second.begin(), key.second.end(), target.name.begin(),
                                       target.name.end());
      const auto common = static_cast<size_t>(apart.first - key.second.begin());
      if (nearest == nullptr || common > longest) nearest = &key.second;
      longest = std::max(longest, common);
    }
    return absl::NotFoundError(
        Text(source_.where(), ": the job wants ", Describe(target.kind, target.name),
             ", but none of its ", of_kind, " tensors of that kind has that name",
             nearest == nullptr ? "" : Text("; the nearest is '", *nearest, "'")));
  }

  void AddRuns(const StoredShard& entry, const StateShard& target) {
    const std::vector<layout::StridedCopy> copies = layout::Copies(*entry.shard, target.shard);
    if (copies.empty()) return;
    std::vector<Run>& runs = wanted_[entry.part][&entry];
    const auto width = static_cast<int64_t>(tensor::SizeOf(target.dtype));
    for (const layout::StridedCopy& copy : copies) {
      for (int64_t k = 0; k < copy.count; ++k) {
        runs.push_back({copy.source_offset + k * copy.source_stride, copy.length,
                        target.data.data() + (copy.target_offset + k * copy.target_stride) * width,
                        target.mover, target.dtype});
      }
    }
  }

  absl::Status ReadPart(uint32_t number, Entries& entries) {
    ASSIGN_OR_RETURN(const auto part, source_.OpenPart(number));
    std::vector<std::pair<uint64_t, const StoredShard*>> order;
    for (const auto& [entry, runs] : entries) {
      ASSIGN_OR_RETURN(const uint64_t offset, part->OffsetOf(entry->number));
      order.emplace_back(offset, entry);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [offset, entry] : order) {
      std::vector<Run>& runs = entries[entry];
      std::sort(runs.begin(), runs.end(),
                [](const Run& a, const Run& b) { return a.source < b.source; });
      const std::string what = Describe(entry->kind, entry->name);
      for (const Run& run : runs) RETURN_IF_ERROR(ReadRun(*part, *entry, offset, run, what));
    }
    return absl::OkStatus();
  }

  absl::Status ReadRun(StoredPart& part, const StoredShard& entry, uint64_t offset, const Run& run,
                       std::string_view what) {
    const uint64_t width = tensor::SizeOf(entry.dtype);
    uint64_t at = offset + static_cast<uint64_t>(run.source) * width;
    uint64_t left = static_cast<uint64_t>(run.length) * width;
    const bool converted = run.dtype != entry.dtype;
    if (!converted && run.mover == nullptr) return part.Read(at, {run.target, left}, what);
    staging_.resize(kStagingBytes);
    converted_.resize(2 * kStagingBytes);
    std::byte* target = run.target;
    while (left > 0) {
      const uint64_t take = std::min<uint64_t>(left, staging_.size());
      RETURN_IF_ERROR(part.Read(at, {staging_.data(), take}, what));
      std::span<const std::byte> bytes(staging_.data(), take);
      if (converted) {
        const auto count = static_cast<int64_t>(take / width);
        for (int64_t at_element = 0; at_element < count; ++at_element) {
          tensor::SetElement(run.dtype, converted_.data(), at_element,
                             tensor::ElementAt(entry.dtype, staging_.data(), at_element));
        }
        bytes = std::span(converted_).first(static_cast<size_t>(count) * tensor::SizeOf(run.dtype));
      }
      if (run.mover != nullptr) {
        run.mover->Write(bytes, target);
      } else {
        std::memcpy(target, bytes.data(), bytes.size());
      }
      target += bytes.size();
      at += take;
      left -= take;
    }
    return absl::OkStatus();
  }

  const StateSource& source_;
  const RestoreOptions options_;
  const std::vector<StoredShard> shards_;
  std::map<std::pair<std::string_view, std::string_view>, std::vector<const StoredShard*>> stored_;
  std::map<uint32_t, Entries> wanted_;  // By part.
  std::vector<std::byte> staging_, converted_;
};

}  // namespace

absl::Status RestoreFrom(const StateSource& source, std::span<const StateShard> targets,
                         const RestoreOptions& options) {
  Restorer restorer(source, options);
  for (const StateShard& target : targets) RETURN_IF_ERROR(restorer.Plan(target));
  return restorer.ReadAll();
}

}  // namespace trireme::checkpoint
