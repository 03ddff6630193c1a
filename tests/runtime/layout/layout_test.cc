// Copies against a brute-force map of every element; any tiling rebuilds any other tiling.
#include "runtime/layout/layout.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

namespace trireme::layout {
namespace {

using Random = std::mt19937;

int64_t Draw(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// The global row-major index of each stored element of `shard`, in stored order.
std::vector<int64_t> Elements(const std::vector<int64_t>& shape, const Shard& shard) {
  std::vector<int64_t> elements;
  for (int64_t local = shard.interval.begin; local < shard.interval.end; ++local) {
    int64_t rest = local;
    int64_t global = 0;
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      const Interval& dim = shard.box.dims[d];
      global += (dim.begin + rest % dim.size()) * stride;
      rest /= dim.size();
      stride *= shape[d];
    }
    elements.push_back(global);
  }
  return elements;
}

// Source offset by target offset, by comparing every element.
std::map<int64_t, int64_t> ExpectedMoves(const std::vector<int64_t>& shape, const Shard& source,
                                         const Shard& target) {
  std::map<int64_t, int64_t> at;
  const std::vector<int64_t> from = Elements(shape, source);
  for (size_t i = 0; i < from.size(); ++i) at[from[i]] = static_cast<int64_t>(i);
  std::map<int64_t, int64_t> moves;
  const std::vector<int64_t> to = Elements(shape, target);
  for (size_t i = 0; i < to.size(); ++i) {
    auto found = at.find(to[i]);
    if (found != at.end()) moves[static_cast<int64_t>(i)] = found->second;
  }
  return moves;
}

// The same from copies; `once` is false if an element is written twice.
std::map<int64_t, int64_t> MovesOf(const std::vector<StridedCopy>& copies, bool* once) {
  std::map<int64_t, int64_t> moves;
  *once = true;
  for (const StridedCopy& copy : copies) {
    for (int64_t k = 0; k < copy.count; ++k) {
      for (int64_t i = 0; i < copy.length; ++i) {
        const int64_t to = copy.target_offset + k * copy.target_stride + i;
        const int64_t from = copy.source_offset + k * copy.source_stride + i;
        *once = *once && moves.emplace(to, from).second;
      }
    }
  }
  return moves;
}

std::vector<int64_t> RandomShape(Random& random, int64_t max_rank) {
  std::vector<int64_t> shape(Draw(random, 0, max_rank));
  const int64_t most = shape.size() <= 2 ? 12 : shape.size() <= 4 ? 5 : 3;
  for (int64_t& extent : shape) extent = Draw(random, 1, most);
  return shape;
}

Shard RandomShard(Random& random, const std::vector<int64_t>& shape) {
  Shard shard;
  for (int64_t extent : shape) {
    Interval dim{0, extent};
    // Whole dimensions are common in practice, and they are what merging is about.
    if (Draw(random, 0, 1) == 0) {
      dim.begin = Draw(random, 0, extent - 1);
      dim.end = Draw(random, dim.begin + 1, extent);
    }
    shard.box.dims.push_back(dim);
  }
  shard.interval = {0, shard.box.elements()};
  if (Draw(random, 0, 2) > 0) {
    shard.interval.begin = Draw(random, 0, shard.box.elements());
    shard.interval.end = Draw(random, shard.interval.begin, shard.box.elements());
  }
  return shard;
}

// Cuts the box by planes at random, then each part by intervals.
void RandomTiling(Random& random, const Box& box, int depth, std::vector<Shard>* tiles) {
  const int64_t d = box.dims.empty() ? 0 : Draw(random, 0, box.dims.size() - 1);
  if (depth > 0 && !box.dims.empty() && box.dims[d].size() > 1) {
    Box left = box;
    Box right = box;
    left.dims[d].end = right.dims[d].begin =
        Draw(random, box.dims[d].begin + 1, box.dims[d].end - 1);
    RandomTiling(random, left, depth - 1, tiles);
    RandomTiling(random, right, depth - 1, tiles);
    return;
  }
  const int64_t parts = Draw(random, 1, 3);
  for (int64_t i = 0; i < parts; ++i) {
    tiles->push_back({box, SplitEvenly(box.elements(), parts, i)});
  }
}

TEST_CASE("copies move exactly the shared elements, each once") {
  Random random(7);
  int shared = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::vector<int64_t> shape = RandomShape(random, 6);
    const Shard source = RandomShard(random, shape);
    const Shard target = RandomShard(random, shape);
    bool once = false;
    const auto moves = MovesOf(Copies(source, target), &once);
    if (!once || moves != ExpectedMoves(shape, source, target)) {
      FAIL("round " << round << ", rank " << shape.size());
    }
    shared += moves.empty() ? 0 : 1;
  }
  CHECK(shared > 1000);  // The rounds do meet.
}

TEST_CASE("any tiling rebuilds any other tiling") {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    const std::vector<int64_t> shape = RandomShape(random, 5);
    std::vector<Shard> before;
    std::vector<Shard> after;
    RandomTiling(random, Box::Whole(shape), 3, &before);
    RandomTiling(random, Box::Whole(shape), 3, &after);
    REQUIRE(CheckTiling(shape, before).ok());
    for (const Shard& target : after) {
      std::vector<int64_t> got(target.elements(), -1);
      for (const Shard& source : before) {
        const std::vector<int64_t> held = Elements(shape, source);
        Apply(Copies(source, target), sizeof(int64_t), std::as_bytes(std::span(held)),
              std::as_writable_bytes(std::span(got)));
      }
      REQUIRE(got == Elements(shape, target));
    }
  }
}

TEST_CASE("large tensors give few copies") {
  const Box whole = Box::Whole({50257, 768});
  const auto rows = [&](int64_t parts, int64_t index) {
    return Shard::Whole({{SplitEvenly(50257, parts, index), {0, 768}}});
  };
  const auto columns = [&](int64_t parts, int64_t index) {
    return Shard::Whole({{{0, 50257}, SplitEvenly(768, parts, index)}});
  };
  CHECK(Copies(rows(4, 1), rows(3, 1)).size() == 1);
  CHECK(Copies(rows(4, 1), Shard::Whole(whole)).front().count == 1);
  REQUIRE(Copies(Shard::Whole(whole), columns(4, 2)).size() == 1);
  CHECK(Copies(Shard::Whole(whole), columns(4, 2)).front() ==
        StridedCopy{384, 0, 192, 768, 192, 50257});
  // A ZeRO cut of a column block: a partial row, whole rows, a partial row.
  const Shard cut{columns(4, 2).box, {1000, 5000000}};
  CHECK(Copies(Shard::Whole(whole), cut).size() == 3);
  CHECK(Copies(cut, Shard::Whole(whole)).size() == 3);
  // One column of both sides' three: runs of one element, still one copy.
  CHECK(Copies(columns(256, 7), Shard{{{{0, 50257}, {22, 23}}}, {0, 50257}}).size() == 1);
}

TEST_CASE("a scalar and empty shards") {
  const Shard scalar = Shard::Whole(Box::Whole({}));
  CHECK(Copies(scalar, scalar) == std::vector<StridedCopy>{{0, 0, 1, 0, 0, 1}});
  CHECK(Copies({{}, {0, 0}}, scalar).empty());
  CHECK(CheckTiling({}, std::vector<Shard>{scalar}).ok());
  CHECK_FALSE(CheckTiling({}, std::vector<Shard>{scalar, scalar}).ok());
  CHECK(CheckTiling({0, 3}, {}).ok());
}

TEST_CASE("SplitEvenly gives the longer pieces first and leaves no gap") {
  for (int64_t size : {0, 1, 7, 30, 50257}) {
    for (int64_t parts : {1, 3, 4, 8}) {
      int64_t at = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Interval piece = SplitEvenly(size, parts, i);
        CHECK(piece.begin == at);
        CHECK(piece.size() == size / parts + (i < size % parts ? 1 : 0));
        at = piece.end;
      }
      CHECK(at == size);
    }
  }
}

TEST_CASE("CheckTiling finds every gap and every overlap") {
  Random random(13);
  for (int round = 0; round < 400; ++round) {
    const std::vector<int64_t> shape = RandomShape(random, 4);
    std::vector<Shard> tiles;
    RandomTiling(random, Box::Whole(shape), 3, &tiles);
    const size_t victim = Draw(random, 0, tiles.size() - 1);
    Shard& shard = tiles[victim];
    if (shard.elements() == 0) continue;
    const bool grow = Draw(random, 0, 1) == 1 && shard.interval.end < shard.box.elements();
    if (grow) {
      ++shard.interval.end;
    } else {
      --shard.interval.end;
    }
    REQUIRE_FALSE(CheckTiling(shape, tiles).ok());
  }
  // A shifted tile: the count is right, one element is there twice and one is nowhere.
  const std::vector<Shard> shifted{{Box::Whole({4, 2}), {0, 4}}, {Box::Whole({4, 2}), {3, 7}}};
  CHECK(std::string(CheckTiling({4, 2}, shifted).message()).find("shard 0") != std::string::npos);
  const std::vector<Shard> crossing{{Box::Whole({4}), {0, 2}}, {{{{1, 3}}}, {0, 2}}};
  CHECK_FALSE(CheckTiling({4}, crossing).ok());
  // Different boxes may complete each other.
  const std::vector<Shard> mixed{{{{{0, 2}, {0, 3}}}, {0, 4}}, {Box::Whole({4, 3}), {4, 12}}};
  CHECK(CheckTiling({4, 3}, mixed).ok());
}

TEST_CASE("CheckShard refuses what does not lie in the shape") {
  const int64_t huge = int64_t{1} << 40;
  CHECK(CheckShard({4, 3}, Shard::Whole(Box::Whole({4, 3}))).ok());
  CHECK_FALSE(CheckShard({4}, Shard::Whole(Box::Whole({4, 3}))).ok());
  CHECK_FALSE(CheckShard({4, 3}, Shard::Whole(Box::Whole({5, 3}))).ok());
  CHECK_FALSE(CheckShard({4}, {{{{3, 2}}}, {0, 0}}).ok());
  CHECK_FALSE(CheckShard({4}, {{{{-1, 2}}}, {0, 1}}).ok());
  CHECK_FALSE(CheckShard({4}, {Box::Whole({4}), {2, 5}}).ok());
  CHECK_FALSE(CheckShard({-1}, {Box::Whole({0}), {0, 0}}).ok());
  CHECK_FALSE(CheckShard({huge, huge}, {Box::Whole({1, 1}), {0, 1}}).ok());
  CHECK_FALSE(CheckShard({huge, huge, 0}, {Box::Whole({1, 1, 0}), {0, 0}}).ok());
  CHECK_FALSE(
      CheckShard(std::vector<int64_t>(9, 1), Shard::Whole(Box::Whole(std::vector<int64_t>(9, 1))))
          .ok());
}

}  // namespace
}  // namespace trireme::layout
