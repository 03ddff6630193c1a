// Whether shards are sound, and whether they hold every element once. Shards of equal boxes (ranks
// that cut one box by intervals) are joined first, so that only few pairs are left to compare.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/layout/layout.h"

namespace trireme::layout {
namespace {

absl::Status CheckShape(const std::vector<int64_t>& shape) {
  if (shape.size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape has ", shape.size(), " dimensions, expected at most ", kMaxRank));
  }
  // Zeros are left out of the product, so that strides of partial boxes cannot overflow either.
  int64_t product = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", d, " of the shape is ", shape[d], ", expected at least 0"));
    }
    if (shape[d] > 0 && __builtin_mul_overflow(product, shape[d], &product)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape [", absl::StrJoin(shape, ","), "] has more than 2^63-1 elements"));
    }
  }
  return absl::OkStatus();
}

std::string Describe(const Shard& shard) {
  return absl::StrCat("box ",
                      absl::StrJoin(shard.box.dims, "x",
                                    [](std::string* out, const Interval& dim) {
                                      absl::StrAppend(out, "[", dim.begin, ",", dim.end, ")");
                                    }),
                      " interval [", shard.interval.begin, ",", shard.interval.end, ")");
}

bool BoxLess(const Box& a, const Box& b) {
  return std::lexicographical_compare(a.dims.begin(), a.dims.end(), b.dims.begin(), b.dims.end(),
                                      [](const Interval& x, const Interval& y) {
                                        return std::pair(x.begin, x.end) <
                                               std::pair(y.begin, y.end);
                                      });
}

struct Piece {
  Shard shard;
  size_t index;  // Of the first shard joined into it.
};

absl::Status Overlapping(const Piece& a, const Piece& b) {
  return absl::InvalidArgumentError(absl::StrCat("shard ", a.index, " (", Describe(a.shard),
                                                 ") and shard ", b.index, " (", Describe(b.shard),
                                                 ") hold the same elements"));
}

}  // namespace

absl::Status CheckShard(const std::vector<int64_t>& shape, const Shard& shard) {
  if (absl::Status status = CheckShape(shape); !status.ok()) return status;
  if (shard.box.dims.size() != shape.size()) {
    return absl::InvalidArgumentError(absl::StrCat("box has ", shard.box.dims.size(),
                                                   " dimensions, the shape has ", shape.size()));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    const Interval& dim = shard.box.dims[d];
    if (dim.begin < 0 || dim.begin > dim.end || dim.end > shape[d]) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", d, " of the box is [", dim.begin, ",", dim.end,
                       "), expected an interval inside [0,", shape[d], ")"));
    }
  }
  const Interval& cut = shard.interval;
  if (cut.begin < 0 || cut.begin > cut.end || cut.end > shard.box.elements()) {
    return absl::InvalidArgumentError(absl::StrCat("interval [", cut.begin, ",", cut.end,
                                                   ") does not lie inside the box's ",
                                                   shard.box.elements(), " elements"));
  }
  return absl::OkStatus();
}

absl::Status CheckTiling(const std::vector<int64_t>& shape, std::span<const Shard> shards) {
  std::vector<Piece> pieces;
  int64_t held = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].elements() > 0) pieces.push_back({shards[i], i});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    if (!(a.shard.box == b.shard.box)) return BoxLess(a.shard.box, b.shard.box);
    return a.shard.interval.begin < b.shard.interval.begin;
  });
  std::vector<Piece> joined;
  for (const Piece& piece : pieces) {
    if (!joined.empty() && joined.back().shard.box == piece.shard.box) {
      Interval& before = joined.back().shard.interval;
      if (piece.shard.interval.begin < before.end) return Overlapping(joined.back(), piece);
      if (piece.shard.interval.begin == before.end) {
        before.end = piece.shard.interval.end;
        continue;
      }
    }
    joined.push_back(piece);
  }
  for (size_t a = 0; a < joined.size(); ++a) {
    for (size_t b = a + 1; b < joined.size(); ++b) {
      // Sorted by the first dimension's begin: what starts beyond the end of `a` cannot meet it.
      const Shard& left = joined[a].shard;
      const Shard& right = joined[b].shard;
      if (!shape.empty() && right.box.dims[0].begin >= left.box.dims[0].end) break;
      if (!Copies(left, right).empty()) return Overlapping(joined[a], joined[b]);
    }
    held += joined[a].shard.elements();
  }
  const int64_t wanted = Box::Whole(shape).elements();
  if (held != wanted) {
    return absl::InvalidArgumentError(absl::StrCat("the shards hold ", held, " of ", wanted,
                                                   " elements of shape [",
                                                   absl::StrJoin(shape, ","), "]"));
  }
  return absl::OkStatus();
}

}  // namespace trireme::layout
