// Layouts of state: a shard is a box of the logical tensor plus an interval of the box's local
// row-major order (ZeRO cuts). The difference of two shards is a list of strided copies; saving,
// restoring and resharding are all that list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace trireme::layout {

// The most dimensions a logical tensor may have.
inline constexpr size_t kMaxRank = 8;

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
  int64_t size() const { return end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// `parts` nearly equal consecutive pieces of [0, size): the first size % parts pieces are one
// longer.
Interval SplitEvenly(int64_t size, int64_t parts, int64_t index);

// One interval per dimension of the logical tensor.
struct Box {
  std::vector<Interval> dims;
  int64_t elements() const;
  static Box Whole(const std::vector<int64_t>& shape);
  friend bool operator==(const Box&, const Box&) = default;
};

// The elements of `box` whose local row-major index lies in `interval`; stored contiguously.
struct Shard {
  Box box;
  Interval interval;
  int64_t elements() const { return interval.size(); }
  static Shard Whole(const Box& box) { return {box, {0, box.elements()}}; }
  friend bool operator==(const Shard&, const Shard&) = default;
};

// `count` runs of `length` elements; run k goes from source_offset + k*source_stride to
// target_offset + k*target_stride. All in elements, relative to the first stored element of each
// shard.
struct StridedCopy {
  int64_t source_offset = 0;
  int64_t target_offset = 0;
  int64_t length = 0;
  int64_t source_stride = 0;
  int64_t target_stride = 0;
  int64_t count = 1;
  friend bool operator==(const StridedCopy&, const StridedCopy&) = default;
};

// What of `target` `source` holds, as copies; empty if nothing. Both are shards of one logical
// tensor, valid by CheckShard. Contiguous runs are merged; a cut along the outer dimension is one
// copy whatever the tensor's size.
std::vector<StridedCopy> Copies(const Shard& source, const Shard& target);

// Carries out `copies` between the stored bytes of two shards whose elements are `element_bytes`
// wide. The spans must hold whole shards and must not overlap.
void Apply(std::span<const StridedCopy> copies, size_t element_bytes,
           std::span<const std::byte> source, std::span<std::byte> target);

// Ok if `shard` lies inside a logical tensor of `shape`: at most kMaxRank dimensions, no overflow,
// box inside the shape, interval inside the box. The error says which dimension and what was
// expected. For layouts read from outside.
absl::Status CheckShard(const std::vector<int64_t>& shape, const Shard& shard);

// Ok if every element of the logical tensor lies in exactly one of `shards` (each valid by
// CheckShard). The error names two shards that overlap (by index), or how many elements nobody
// holds. Quick for many ranks that cut few boxes.
absl::Status CheckTiling(const std::vector<int64_t>& shape, std::span<const Shard> shards);

}  // namespace trireme::layout
