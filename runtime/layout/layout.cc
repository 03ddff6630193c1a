// The points two boxes share have the same order in both local row-major orders. So both
// intervals cut one and the same list of points to one range of it, and that range falls apart
// into at most two partial sub-boxes per dimension and whole ones between them.
#include "runtime/layout/layout.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/base/check.h"

namespace trireme::layout {
namespace {

// The points both boxes share: `rank` dimensions, each with its extent and its strides in the two
// local orders; the first point lies at the two bases. Extents of one are dropped, and dimensions
// that are contiguous on both sides are one.
struct Overlap {
  struct Dim {
    int64_t extent;
    int64_t source_stride;
    int64_t target_stride;
  };
  std::array<Dim, kMaxRank> dims;
  size_t rank = 0;
  int64_t source_base = 0;
  int64_t target_base = 0;

  void PushOuter(const Dim& outer) {
    if (outer.extent == 1) return;
    if (rank > 0) {
      Dim& inner = dims[rank - 1];
      if (outer.source_stride == inner.extent * inner.source_stride &&
          outer.target_stride == inner.extent * inner.target_stride) {
        inner.extent *= outer.extent;
        return;
      }
    }
    dims[rank++] = outer;
  }
  int64_t elements() const {
    int64_t product = 1;
    for (size_t d = 0; d < rank; ++d) product *= dims[d].extent;
    return product;
  }
};

// False if the boxes share nothing.
bool Intersect(const Box& source, const Box& target, Overlap* overlap) {
  TRIREME_CHECK(source.dims.size() == target.dims.size());
  TRIREME_CHECK(source.dims.size() <= kMaxRank);
  int64_t source_stride = 1;
  int64_t target_stride = 1;
  for (size_t d = source.dims.size(); d-- > 0;) {
    const Interval& s = source.dims[d];
    const Interval& t = target.dims[d];
    const int64_t begin = std::max(s.begin, t.begin);
    const int64_t end = std::min(s.end, t.end);
    if (begin >= end) return false;
    overlap->source_base += (begin - s.begin) * source_stride;
    overlap->target_base += (begin - t.begin) * target_stride;
    overlap->PushOuter({end - begin, source_stride, target_stride});
    source_stride *= s.size();
    target_stride *= t.size();
  }
  std::reverse(overlap->dims.begin(), overlap->dims.begin() + overlap->rank);
  return true;
}

// How many shared points have a local index below `bound` on the side that `stride` and `base`
// describe.
int64_t PointsBelow(const Overlap& overlap, int64_t base, int64_t Overlap::Dim::*stride,
                    int64_t bound) {
  int64_t rest = bound - base;
  int64_t inner = overlap.elements();
  if (rest <= 0) return 0;
  int64_t points = 0;
  for (size_t d = 0; d < overlap.rank; ++d) {
    const Overlap::Dim& dim = overlap.dims[d];
    inner /= dim.extent;
    const int64_t whole = rest / (dim.*stride);
    if (whole >= dim.extent) return points + dim.extent * inner;
    points += whole * inner;
    rest -= whole * (dim.*stride);
    if (rest == 0) return points;
  }
  return points + 1;  // The one point reached lies below the bound, since rest > 0.
}

// Emits ranges of the shared points' row-major order as copies.
class Emitter {
 public:
  Emitter(const Overlap& overlap, std::vector<StridedCopy>* copies)
      : overlap_(overlap), copies_(copies) {
    inner_[overlap.rank] = 1;
    for (size_t d = overlap.rank; d-- > 0;) inner_[d] = inner_[d + 1] * overlap.dims[d].extent;
  }

  // Points [begin, end) of the sub-box of dimensions d.. whose first point is at the two offsets.
  void Range(size_t d, int64_t begin, int64_t end, int64_t source, int64_t target) {
    if (begin >= end) return;
    if (d == overlap_.rank) return Whole(d, 1, source, target);
    const Overlap::Dim& dim = overlap_.dims[d];
    const int64_t inner = inner_[d + 1];
    const int64_t first = begin / inner;
    const int64_t last = end / inner;
    auto source_at = [&](int64_t i) { return source + i * dim.source_stride; };
    auto target_at = [&](int64_t i) { return target + i * dim.target_stride; };
    if (first == last) {
      return Range(d + 1, begin - first * inner, end - first * inner, source_at(first),
                   target_at(first));
    }
    int64_t whole = first;
    if (begin > first * inner) {
      Range(d + 1, begin - first * inner, inner, source_at(first), target_at(first));
      ++whole;
    }
    if (whole < last) Whole(d, last - whole, source_at(whole), target_at(whole));
    Range(d + 1, 0, end - last * inner, source_at(last), target_at(last));
  }

 private:
  // `extent` whole slices of dimension d. Runs go along the last dimension if it is contiguous on
  // both sides; the longest other dimension becomes the copy's count, the rest are loops.
  void Whole(size_t d, int64_t extent, int64_t source, int64_t target) {
    std::array<Overlap::Dim, kMaxRank> dims;
    size_t rank = 0;
    for (size_t k = d; k < overlap_.rank; ++k) dims[rank++] = overlap_.dims[k];
    if (rank > 0) dims[0].extent = extent;
    StridedCopy copy{source, target, 1, 0, 0, 1};
    if (rank > 0 && dims[rank - 1].source_stride == 1 && dims[rank - 1].target_stride == 1) {
      copy.length = dims[--rank].extent;
    }
    if (rank > 0) {
      size_t longest = 0;
      for (size_t k = 1; k < rank; ++k) {
        if (dims[k].extent >= dims[longest].extent) longest = k;
      }
      if (dims[longest].extent > 1) {
        copy.count = dims[longest].extent;
        copy.source_stride = dims[longest].source_stride;
        copy.target_stride = dims[longest].target_stride;
      }
      std::copy(dims.begin() + longest + 1, dims.begin() + rank, dims.begin() + longest);
      --rank;
    }
    Loop({dims.data(), rank}, copy);
  }

  void Loop(std::span<const Overlap::Dim> outer, StridedCopy copy) {
    if (outer.empty()) {
      copies_->push_back(copy);
      return;
    }
    for (int64_t i = 0; i < outer[0].extent; ++i) {
      Loop(outer.subspan(1), copy);
      copy.source_offset += outer[0].source_stride;
      copy.target_offset += outer[0].target_stride;
    }
  }

  const Overlap& overlap_;
  std::vector<StridedCopy>* copies_;
  std::array<int64_t, kMaxRank + 1> inner_;  // Points of a sub-box of dimensions d.. .
};

}  // namespace

Interval SplitEvenly(int64_t size, int64_t parts, int64_t index) {
  TRIREME_CHECK(size >= 0 && parts > 0 && index >= 0 && index < parts);
  const int64_t base = size / parts;
  const int64_t longer = size % parts;
  const int64_t begin = index * base + std::min(index, longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

int64_t Box::elements() const {
  int64_t product = 1;
  for (const Interval& dim : dims) product *= dim.size();
  return product;
}

Box Box::Whole(const std::vector<int64_t>& shape) {
  Box box;
  box.dims.reserve(shape.size());
  for (int64_t extent : shape) box.dims.push_back({0, extent});
  return box;
}

std::vector<StridedCopy> Copies(const Shard& source, const Shard& target) {
  std::vector<StridedCopy> copies;
  Overlap overlap;
  if (!Intersect(source.box, target.box, &overlap)) return copies;
  auto below = [&](bool of_source, int64_t bound) {
    return of_source
               ? PointsBelow(overlap, overlap.source_base, &Overlap::Dim::source_stride, bound)
               : PointsBelow(overlap, overlap.target_base, &Overlap::Dim::target_stride, bound);
  };
  const int64_t begin =
      std::max(below(true, source.interval.begin), below(false, target.interval.begin));
  const int64_t end = std::min(below(true, source.interval.end), below(false, target.interval.end));
  Emitter(overlap, &copies)
      .Range(0, begin, end, overlap.source_base - source.interval.begin,
             overlap.target_base - target.interval.begin);
  return copies;
}

void Apply(std::span<const StridedCopy> copies, size_t element_bytes,
           std::span<const std::byte> source, std::span<std::byte> target) {
  const auto width = static_cast<int64_t>(element_bytes);
  for (const StridedCopy& copy : copies) {
    const int64_t last = copy.count - 1;
    const int64_t source_end = copy.source_offset + last * copy.source_stride + copy.length;
    const int64_t target_end = copy.target_offset + last * copy.target_stride + copy.length;
    TRIREME_CHECK(copy.source_offset >= 0 && copy.target_offset >= 0);
    TRIREME_CHECK(source_end * width <= static_cast<int64_t>(source.size()));
    TRIREME_CHECK(target_end * width <= static_cast<int64_t>(target.size()));
    const std::byte* from = source.data() + copy.source_offset * width;
    std::byte* to = target.data() + copy.target_offset * width;
    for (int64_t k = 0; k < copy.count; ++k) {
      std::memcpy(to + k * copy.target_stride * width, from + k * copy.source_stride * width,
                  static_cast<size_t>(copy.length * width));
    }
  }
}

}  // namespace trireme::layout
