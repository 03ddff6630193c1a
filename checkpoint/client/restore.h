// The one mover of stored state: whatever targets want of it, at any layout, from wherever it is
// stored. A source has shards of logical tensors in parts that are read one after the other: files
// of a checkpoint (reader.h), or the memory of ranks (slot_source.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/state.h"

namespace trireme::checkpoint {

// Names and shapes are the source's, and live as long as it.
struct StoredShard {
  std::string_view name, kind;
  tensor::DType dtype = tensor::DType::kF32;
  const std::vector<int64_t>* shape = nullptr;  // of the logical tensor
  const layout::Shard* shard = nullptr;
  uint32_t part = 0;  // that it is in
  size_t number = 0;  // in the source's own list
};

// One part, opened. One thread at a time.
class StoredPart {
 public:
  virtual ~StoredPart() = default;
  // Where the elements of a shard begin, one after the other. DataLoss: they are not there.
  virtual absl::StatusOr<uint64_t> OffsetOf(size_t number) = 0;
  // Bytes that have been compared with their checksums. Whoever goes upwards has each read once.
  // DataLoss names part, piece and `what` (which tensor was wanted). Blocks.
  virtual absl::Status Read(uint64_t offset, std::span<std::byte> target,
                            std::string_view what) = 0;
};

// Const methods may be called from several threads.
class StateSource {
 public:
  virtual ~StateSource() = default;
  // Where this is, in messages.
  virtual const std::string& where() const = 0;
  virtual std::vector<StoredShard> shards() const = 0;
  virtual absl::StatusOr<std::unique_ptr<StoredPart>> OpenPart(uint32_t part) const = 0;
};

struct RestoreOptions {
  // f32 state always fits f64 targets exactly. This also lets f64 state be rounded to f32 targets.
  bool allow_narrowing = false;
  // If given, the number of pieces read from files is added here.
  uint64_t* pieces_read = nullptr;
};

// Fills the data of each target. Reads only what is wanted. Errors: NotFound (no such tensor),
// FailedPrecondition (another shape or dtype), InvalidArgument (a target that cannot be), and those
// of the parts. After an error the targets' contents are not to be used.
absl::Status RestoreFrom(const StateSource& source, std::span<const StateShard> targets,
                         const RestoreOptions& options = {});

}  // namespace trireme::checkpoint
