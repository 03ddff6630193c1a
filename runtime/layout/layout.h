// Layouts of state: a shard is a box of the logical tensor plus an interval of the box's local row-major order (ZeRO
// cuts). The difference of two shards is a list of strided copies; saving, restoring and resharding are all that list.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::layout {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
  int64_t size() const { return end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// `parts` nearly equal consecutive pieces of [0, size): the first size % parts pieces are one longer.
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

// `count` runs of `length` elements; run k goes from source_offset + k*source_stride to target_offset + k*target_stride.
// All in elements, relative to the first stored element of each shard.
struct StridedCopy {
  int64_t source_offset = 0;
  int64_t target_offset = 0;
  int64_t length = 0;
  int64_t source_stride = 0;
  int64_t target_stride = 0;
  int64_t count = 1;
  friend bool operator==(const StridedCopy&, const StridedCopy&) = default;
};

// What of `target` `source` holds, as copies; empty if nothing. Both are shards of one logical tensor.
std::vector<StridedCopy> Copies(const Shard& source, const Shard& target);

}  // namespace trireme::layout
