// What a checkpoint is made of, as the worker sees it: shards of named tensors, and what is needed
// to go on from them. Bytes only: no tensor maths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/layout/layout.h"
#include "runtime/tensor/dtype.h"

namespace trireme::checkpoint {

// Brings state to this process's memory and back, where it is elsewhere (a device). Called by the
// thread that saves or restores, which it blocks.
class StateMover {
 public:
  virtual ~StateMover() = default;
  virtual void Read(const std::byte* from, std::span<std::byte> to) const = 0;
  virtual void Write(std::span<const std::byte> from, std::byte* to) const = 0;
};

// One rank's part of one logical tensor. The same struct names what to save and where to restore.
struct StateShard {
  std::string name;  // Of the logical tensor, e.g. "h.0.ln_1.weight".
  std::string kind;  // "parameter", "moment1", "moment2", ...: letters, digits and '_'.
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;  // Of the logical tensor; [] is a scalar.
  layout::Shard shard;
  std::span<std::byte> data;  // Not owned: shard.elements() elements. Saving only reads it.
  // Null: `data` is memory of this process. Else it is only read and written by this.
  const StateMover* mover = nullptr;
};

struct CheckpointInfo {
  uint64_t step = 0;     // Optimizer updates done.
  uint64_t samples = 0;  // Samples consumed, which is also the next global sample index.
  uint64_t spec_hash = 0;
  std::string job_yaml;   // The resolved job, as text.
  std::string tokenizer;  // Its description, as text.
  // Of the text's tokens (docs/formats/checkpoint.md); none in manifests from before it was kept.
  std::optional<uint64_t> data_digest = std::nullopt;
  int ranks = 0;                          // Writing ranks, numbered from 0.
  std::map<std::string, double> scalars;  // Schedule position, loss scale, ...; kept bit for bit.
  std::string model_config;               // The text of the model's config.json.
};

}  // namespace trireme::checkpoint
