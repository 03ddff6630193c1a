// State for tests: logical tensors whose every element is a function of (kind, name, index), cut
// into shards by random tilings, so that any layout can be filled, saved, restored and compared.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/format/state.h"
#include "runtime/layout/layout.h"
#include "runtime/tensor/dtype.h"

namespace trireme::checkpoint {

using Random = std::mt19937;

inline int64_t Draw(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char pattern[] = "/tmp/trireme_checkpoint_XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline void FlipByte(const std::string& path, uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 0x10));
}

struct LogicalTensor {
  std::string kind;
  std::string name;
  std::vector<int64_t> shape;
  tensor::DType dtype = tensor::DType::kF32;
};

// A float that every dtype of the tests holds exactly.
inline double ValueOf(const LogicalTensor& tensor, int64_t index, uint64_t salt) {
  const uint64_t hash =
      std::hash<std::string>()(tensor.kind + "/" + tensor.name) * 31 + salt * 977 + index * 7919;
  return static_cast<double>((hash * 0x9e3779b97f4a7c15u) >> 40) - 5e6;
}

// One rank's shards with their memory; addresses stay when more are added.
class RankState {
 public:
  void Add(const LogicalTensor& tensor, const layout::Shard& shard) {
    memory_.emplace_back(static_cast<size_t>(shard.elements()) * SizeOf(tensor.dtype),
                         std::byte{0xee});
    shards_.push_back({.name = tensor.name,
                       .kind = tensor.kind,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .shard = shard,
                       .data = memory_.back()});
  }
  // Fills every element with its value; `salt` tells one version of the state from another.
  void Fill(uint64_t salt) {
    for (StateShard& shard : shards_) {
      Each(
          shard,
          [&](size_t local, double value) {
            if (shard.dtype == tensor::DType::kF64) {
              std::memcpy(shard.data.data() + local * 8, &value, 8);
            } else {
              const auto narrow = static_cast<float>(value);
              std::memcpy(shard.data.data() + local * 4, &narrow, 4);
            }
          },
          salt);
    }
  }
  // True if every element holds its value, bit for bit.
  bool Holds(uint64_t salt) const {
    bool equal = true;
    for (const StateShard& shard : shards_) {
      Each(
          shard,
          [&](size_t local, double value) {
            const auto narrow = static_cast<float>(value);
            equal = equal && (shard.dtype == tensor::DType::kF64
                                  ? std::memcmp(shard.data.data() + local * 8, &value, 8) == 0
                                  : std::memcmp(shard.data.data() + local * 4, &narrow, 4) == 0);
          },
          salt);
    }
    return equal;
  }
  const std::vector<StateShard>& shards() const { return shards_; }
  std::vector<StateShard>& shards() { return shards_; }

 private:
  template <typename Visit>
  static void Each(const StateShard& shard, const Visit& visit, uint64_t salt) {
    const LogicalTensor tensor{shard.kind, shard.name, shard.shape, shard.dtype};
    for (int64_t local = shard.shard.interval.begin; local < shard.shard.interval.end; ++local) {
      int64_t rest = local;
      int64_t global = 0;
      int64_t stride = 1;
      for (size_t d = shard.shape.size(); d-- > 0;) {
        const layout::Interval& dim = shard.shard.box.dims[d];
        global += (dim.begin + rest % dim.size()) * stride;
        rest /= dim.size();
        stride *= shard.shape[d];
      }
      visit(static_cast<size_t>(local - shard.shard.interval.begin), ValueOf(tensor, global, salt));
    }
  }
  std::deque<std::vector<std::byte>> memory_;
  std::vector<StateShard> shards_;
};

inline void RandomTiling(Random& random, const layout::Box& box, int depth,
                         std::vector<layout::Shard>* tiles) {
  const int64_t d = box.dims.empty() ? 0 : Draw(random, 0, box.dims.size() - 1);
  if (depth > 0 && !box.dims.empty() && box.dims[d].size() > 1) {
    layout::Box left = box;
    layout::Box right = box;
    left.dims[d].end = right.dims[d].begin =
        Draw(random, box.dims[d].begin + 1, box.dims[d].end - 1);
    RandomTiling(random, left, depth - 1, tiles);
    RandomTiling(random, right, depth - 1, tiles);
    return;
  }
  const int64_t parts = Draw(random, 1, 3);
  for (int64_t i = 0; i < parts; ++i) {
    tiles->push_back({box, layout::SplitEvenly(box.elements(), parts, i)});
  }
}

inline std::vector<LogicalTensor> SampleTensors() {
  std::vector<LogicalTensor> tensors;
  for (const char* kind : {"parameter", "moment1", "moment2"}) {
    tensors.push_back({kind, "wte.weight", {53, 12}});
    tensors.push_back({kind, "h.0.ln_1.bias", {7}});
    tensors.push_back({kind, "h.0.attn.c_attn.weight", {6, 3, 5}});
    tensors.push_back({kind, "scale", {}});
  }
  return tensors;
}

// The tensors, cut at random and dealt out to `ranks` ranks; a rank may get nothing.
inline std::vector<RankState> RandomLayout(Random& random,
                                           const std::vector<LogicalTensor>& tensors, int ranks) {
  std::vector<RankState> states(static_cast<size_t>(ranks));
  for (const LogicalTensor& tensor : tensors) {
    std::vector<layout::Shard> tiles;
    RandomTiling(random, layout::Box::Whole(tensor.shape), 2, &tiles);
    for (const layout::Shard& tile : tiles) {
      states[static_cast<size_t>(Draw(random, 0, ranks - 1))].Add(tensor, tile);
    }
  }
  return states;
}

inline RankState WholeState(const std::vector<LogicalTensor>& tensors) {
  RankState state;
  for (const LogicalTensor& tensor : tensors) {
    state.Add(tensor, layout::Shard::Whole(layout::Box::Whole(tensor.shape)));
  }
  return state;
}

inline CheckpointInfo InfoOf(uint64_t step, int ranks) {
  return {.step = step,
          .samples = step * 48,
          .spec_hash = 0xfedcba9876543210u,
          .job_yaml = "model:\n  family: gpt2  # \"quoted\"\n",
          .tokenizer = "bytes",
          .data_digest = 0x0123456789abcdefu,
          .ranks = ranks,
          .scalars = {{"loss_scale", 0.1}, {"zero", -0.0}},
          .model_config = "{\"n_layer\": 2}"};
}

}  // namespace trireme::checkpoint
