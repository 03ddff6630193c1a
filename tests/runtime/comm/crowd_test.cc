// Groups of up to 3,072 ranks: how many messages and hops a collective takes, and that the index
// arithmetic of every algorithm holds there. One thread, so all figures are exact.
#include "tests/runtime/comm/crowd.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/comm/channels.h"
#include "runtime/comm/choice.h"
#include "runtime/comm/coded.h"
#include "runtime/comm/coding.h"
#include "runtime/comm/window.h"

namespace trireme::comm {
namespace {

void RequireOk(const absl::Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}

// Levels of a tree of kTreeArity children a node, below its root.
int LevelsOf(int ranks) {
  int levels = 0;
  for (int64_t nodes = 1, level = 1; nodes < ranks; ++levels) nodes += level *= kTreeArity;
  return levels;
}

// Digits of a number below `ranks`: hops on the way up a gather tree.
int DigitsOf(int ranks) {
  int digits = 0;
  for (int64_t below = 1; below < ranks; below *= kTreeArity) ++digits;
  return digits;
}

std::vector<int64_t> Even(int ranks, int64_t each) {
  std::vector<int64_t> offsets(static_cast<size_t>(ranks) + 1);
  for (size_t r = 0; r < offsets.size(); ++r) offsets[r] = static_cast<int64_t>(r) * each;
  return offsets;
}

// `each` elements at some ranks, among them the first, the last and the borders of subtrees; none
// at the others.
std::vector<int64_t> Some(int ranks, int64_t each) {
  std::vector<int64_t> offsets = {0};
  for (int r = 0; r < ranks; ++r) {
    const bool has = r == 0 || r == ranks - 1 || r == 7 || r == 8 || r == 9 || r == 63 || r == 64 ||
                     r == 65 || r == 127 || r == 128 || r == 511 || r == 512 || r % 577 == 576;
    offsets.push_back(offsets.back() + (has ? each + r % 2 : 0));
  }
  return offsets;
}

// The data of all ranks, and what they are to become.
class Numbers {
 public:
  Numbers(int ranks, std::vector<int64_t> offsets) : offsets_(std::move(offsets)) {
    const int64_t count = offsets_.back();
    for (int r = 0; r < ranks; ++r) {
      data_.emplace_back(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) data_.back()[static_cast<size_t>(i)] = Value<float>(r, i);
    }
    sum_.resize(static_cast<size_t>(count));
    for (int r = 0; r < ranks; ++r) {
      for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += data_[static_cast<size_t>(r)][i];
    }
  }

  int64_t count() const { return offsets_.back(); }
  std::vector<float>& of(const Communicator& comm) {
    return data_[static_cast<size_t>(comm.rank())];
  }
  Sharded sharded(const Communicator& comm) {
    return {of(comm).data(), offsets_, tensor::DType::kF32};
  }
  bool AllSummed() const {
    return std::all_of(data_.begin(), data_.end(), [&](const auto& one) { return one == sum_; });
  }
  bool OwnSummed() const {
    bool right = true;
    for (size_t r = 0; r + 1 < offsets_.size(); ++r) {
      right = right && std::equal(sum_.begin() + offsets_[r], sum_.begin() + offsets_[r + 1],
                                  data_[r].begin() + offsets_[r]);
    }
    return right;
  }
  // Every share is what its owner had.
  bool Gathered() const {
    std::vector<float> expected;
    for (size_t r = 0; r + 1 < offsets_.size(); ++r) {
      for (int64_t i = offsets_[r]; i < offsets_[r + 1]; ++i)
        expected.push_back(Value<float>(static_cast<int>(r), i));
    }
    return std::all_of(data_.begin(), data_.end(),
                       [&](const auto& one) { return one == expected; });
  }

 private:
  std::vector<int64_t> offsets_;
  std::vector<std::vector<float>> data_;
  std::vector<float> sum_;
};

absl::Status Gather(Crowd& crowd, Numbers& numbers) {
  return crowd.Run([&](Communicator& comm, tensor::Stream& stream) {
    return comm.AllGather(numbers.sharded(comm), stream);
  });
}
absl::Status Scatter(Crowd& crowd, Numbers& numbers) {
  return crowd.Run([&](Communicator& comm, tensor::Stream& stream) {
    return comm.ReduceScatter(numbers.sharded(comm), stream);
  });
}
absl::Status Sum(Crowd& crowd, Numbers& numbers) {
  return crowd.Run([&](Communicator& comm, tensor::Stream& stream) {
    return comm.AllReduce(numbers.of(comm).data(), numbers.count(), tensor::DType::kF32,
                          ReduceOp::kSum, stream);
  });
}

TEST_CASE("crowd: 24 bytes of each rank take at most two messages a rank") {
  constexpr int64_t kNumbers = 6;  // of f32: 24 bytes
  for (const int ranks : {kExchangeShareRanks + 1, 64, 65, 128, 129, 300, 513, 3072}) {
    INFO(ranks << " ranks");
    Crowd crowd(ranks);
    Numbers gathered(ranks, Even(ranks, kNumbers));
    RequireOk(Gather(crowd, gathered));
    CHECK(gathered.Gathered());
    CHECK(crowd.office().messages == 2 * (ranks - 1));
    CHECK(crowd.hops() <= DigitsOf(ranks) + LevelsOf(ranks));

    // As NORM adds a few numbers of the whole job.
    Numbers summed(ranks, Even(1, kNumbers));
    RequireOk(Sum(crowd, summed));
    CHECK(summed.AllSummed());
    CHECK(crowd.office().messages == 2 * (ranks - 1));
    CHECK(crowd.hops() <= 2 * LevelsOf(ranks));

    Numbers scattered(ranks, Even(ranks, 1));
    RequireOk(Scatter(crowd, scattered));
    CHECK(scattered.OwnSummed());
    CHECK(crowd.office().messages == 2 * (ranks - 1));
    CHECK(crowd.hops() <= 2 * LevelsOf(ranks));
  }
}

// As one number each of some ranks: sizes that are empty on most ranks, and messages that are.
TEST_CASE("crowd: a tree of shares that are mostly empty") {
  for (const int ranks : {65, 129, 300, 3072}) {
    INFO(ranks << " ranks");
    Crowd crowd(ranks);
    Numbers gathered(ranks, Some(ranks, 3));
    RequireOk(Gather(crowd, gathered));
    CHECK(gathered.Gathered());
    CHECK(crowd.office().messages <= 2 * (ranks - 1));
    Numbers scattered(ranks, Some(ranks, 3));
    RequireOk(Scatter(crowd, scattered));
    CHECK(scattered.OwnSummed());
  }
}

// Few ranks have a share; its pieces go all the way round.
TEST_CASE("crowd: a ring over many ranks") {
  FabricOptions options;
  options.staging_bytes = 64 << 10;
  const auto staging = static_cast<int64_t>(options.staging_bytes);
  constexpr int64_t kElement = sizeof(float);
  for (const int ranks : {65, 128, 129, 300, 3072}) {
    INFO(ranks << " ranks");
    Crowd crowd(ranks, options);
    // Too much for a tree, but no more than 3,072 ranks can hold here.
    const int64_t piece = RingPieceBytes(true, staging) / kElement;
    const std::vector<int64_t> offsets = Some(ranks, ranks < 300 ? piece : 512);
    const CallShape shape{.kind = CollectiveKind::kReduceScatter,
                          .ranks = ranks,
                          .bytes = offsets.back() * kElement,
                          .largest_share_bytes = offsets[1] * kElement,
                          .staging_bytes = staging};
    REQUIRE(Choose(shape) == AlgorithmKind::kRing);
    Numbers scattered(ranks, offsets);
    RequireOk(Scatter(crowd, scattered));
    CHECK(scattered.OwnSummed());
    Numbers summed(ranks, Even(1, TreeSumBytes(ranks, staging) / kElement + 1));
    RequireOk(Sum(crowd, summed));
    CHECK(summed.AllSummed());
    CHECK(crowd.office().messages > 2 * (ranks - 1));
    if (ranks >= 300) continue;
    Numbers gathered(ranks, offsets);
    RequireOk(Gather(crowd, gathered));
    CHECK(gathered.Gathered());
  }
}

TEST_CASE("crowd: a broadcast over many ranks, down a tree and along a chain") {
  for (const int ranks : {65, 129, 300, 3072}) {
    Crowd crowd(ranks);
    for (const int root : {0, ranks / 2 + 1, ranks - 1}) {
      INFO(ranks << " ranks, root " << root);
      std::vector<std::vector<std::byte>> data(static_cast<size_t>(ranks));
      for (auto& one : data) one.resize(1000);
      for (size_t i = 0; i < 1000; ++i)
        data[static_cast<size_t>(root)][i] = static_cast<std::byte>(i * 31 % 251);
      RequireOk(crowd.Run([&](Communicator& comm, tensor::Stream& stream) {
        return comm.Broadcast(data[static_cast<size_t>(comm.rank())], root, stream);
      }));
      CHECK(std::all_of(data.begin(), data.end(),
                        [&](const auto& one) { return one == data[static_cast<size_t>(root)]; }));
      CHECK(crowd.office().messages == ranks - 1);
      CHECK(crowd.hops() <= LevelsOf(ranks));
    }
  }
}

// Which rank is the root's neighbour in a chain, and how far the last one is.
TEST_CASE("crowd: a chain takes one hop a rank, and no more") {
  constexpr int kRanks = 40;
  const int64_t bytes = BroadcastTreeBytes(kRanks) + 1;
  for (const int root : {0, 17, kRanks - 1}) {
    Crowd crowd(kRanks);
    std::vector<std::vector<std::byte>> data(kRanks);
    for (auto& one : data) one.resize(static_cast<size_t>(bytes));
    for (size_t i = 0; i < static_cast<size_t>(bytes); ++i)
      data[static_cast<size_t>(root)][i] = static_cast<std::byte>(i * 31 % 251);
    RequireOk(crowd.Run([&](Communicator& comm, tensor::Stream& stream) {
      return comm.Broadcast(data[static_cast<size_t>(comm.rank())], root, stream);
    }));
    CHECK(std::all_of(data.begin(), data.end(),
                      [&](const auto& one) { return one == data[static_cast<size_t>(root)]; }));
    const int64_t pieces = (bytes + kBroadcastPieceBytes - 1) / kBroadcastPieceBytes;
    CHECK(crowd.office().messages == pieces * (kRanks - 1));
    // A tree sends as many, but most of them from few ranks.
    CHECK(crowd.hops() >= kRanks - 1);
  }
}

TEST_CASE("crowd: sums through a window of many ranks") {
  for (const int ranks : {65, 129, 300}) {
    INFO(ranks << " ranks");
    constexpr size_t kPieceBytes = 512;  // the least that makes a window
    FabricOptions options;
    options.window_bytes = Window::kDepth * static_cast<size_t>(ranks) * kPieceBytes;
    Crowd crowd(ranks, options);
    // Over the border by one element; and at some ranks more than all places hold.
    Numbers just(ranks, Even(1, kWindowBytes / int64_t{sizeof(float)} + 1));
    RequireOk(Sum(crowd, just));
    CHECK(just.AllSummed());
    CHECK(crowd.office().messages == 0);
    Numbers pieces(ranks, Some(ranks, 3 * int64_t{kPieceBytes} / int64_t{sizeof(float)} + 1));
    RequireOk(Scatter(crowd, pieces));
    CHECK(pieces.OwnSummed());
    CHECK(crowd.office().messages == 0);
  }
}

TEST_CASE("crowd: in node memory a collective takes no message and no slot of the window") {
  for (const int ranks : {2, 3, 9}) {
    INFO(ranks << " ranks");
    FabricOptions options;
    options.window_bytes = Window::kDepth * static_cast<size_t>(ranks) * 4096;
    Crowd crowd(ranks, options);
    const std::vector<int64_t> offsets = Some(ranks, 20000);  // one turn of work
    const auto count = static_cast<size_t>(offsets.back());
    const auto memory = crowd.Allocate(count * sizeof(float));
    const auto of = [&](int rank) {
      return reinterpret_cast<float*>(memory[static_cast<size_t>(rank)]->own().data());
    };
    const auto fill = [&] {
      for (int r = 0; r < ranks; ++r) {
        for (size_t i = 0; i < count; ++i) of(r)[i] = Value<float>(r, static_cast<int64_t>(i));
      }
    };
    const auto run = [&](CollectiveKind kind) {
      fill();
      RequireOk(crowd.Run([&](Communicator& comm, tensor::Stream& stream) {
        const Sharded sharded{of(comm.rank()), offsets, tensor::DType::kF32};
        if (kind == CollectiveKind::kAllGather) return comm.AllGather(sharded, stream);
        if (kind == CollectiveKind::kReduceScatter) return comm.ReduceScatter(sharded, stream);
        return comm.AllReduce(of(comm.rank()), offsets.back(), tensor::DType::kF32, ReduceOp::kSum,
                              stream);
      }));
      CHECK(crowd.office().messages == 0);
      const std::byte* window = crowd.office().window.get();
      const size_t fixed = Board::BytesFor(ranks) + 64;
      CHECK(std::all_of(window + fixed, window + crowd.office().window_bytes,
                        [](std::byte byte) { return byte == std::byte{0}; }));
    };
    const auto wrong = [&](int rank, int64_t begin, int64_t end, bool sum) {
      int64_t different = 0;
      for (int64_t i = begin; i < end; ++i) {
        const auto after = std::upper_bound(offsets.begin(), offsets.end(), i);
        float expected = Value<float>(static_cast<int>(after - offsets.begin()) - 1, i);
        for (int r = 0; sum && r < ranks; ++r)
          expected = r == 0 ? Value<float>(0, i) : expected + Value<float>(r, i);
        different += of(rank)[i] == expected ? 0 : 1;
      }
      return different;
    };
    run(CollectiveKind::kAllReduce);
    for (int r = 0; r < ranks; ++r) CHECK(wrong(r, 0, offsets.back(), true) == 0);
    run(CollectiveKind::kReduceScatter);
    for (int r = 0; r < ranks; ++r) {
      const size_t at = static_cast<size_t>(r);
      CHECK(wrong(r, offsets[at], offsets[at + 1], true) == 0);
    }
    run(CollectiveKind::kAllGather);
    for (int r = 0; r < ranks; ++r) CHECK(wrong(r, 0, offsets.back(), false) == 0);
  }
}

TEST_CASE("crowd: coded sums and gathers of many ranks, with the least memory") {
  for (const int ranks : {9, 65, 129}) {
    INFO(ranks << " ranks");
    FabricOptions options;
    options.coding.collective_bytes = LeastCodedBytes(ranks);
    Crowd crowd(ranks, options);
    const int64_t count = Some(ranks, 700).back();
    // Whole numbers within a bound below a half of their steps, added as codes: exact when rounded.
    const std::vector<CodedRun> runs = {{0, count / 2, 0.4 / ranks}, {count / 2, count - 5, 0}};
    Coding coding;
    coding.runs = runs;
    const auto coded = [&](CollectiveKind kind, Numbers& numbers) {
      return crowd.Run([&](Communicator& comm, tensor::Stream& stream) {
        if (kind == CollectiveKind::kAllGather)
          return comm.AllGather(numbers.sharded(comm), {stream, &coding});
        return comm.ReduceScatter(numbers.sharded(comm), {stream, &coding});
      });
    };
    const auto round_all = [&](Numbers& numbers) {
      RequireOk(crowd.Run([&](Communicator& comm, tensor::Stream&) {
        for (float& value : numbers.of(comm)) value = std::nearbyint(value);
        return Ticket{};
      }));
    };
    Numbers scattered(ranks, Some(ranks, 700));
    RequireOk(coded(CollectiveKind::kReduceScatter, scattered));
    round_all(scattered);
    CHECK(scattered.OwnSummed());
    Numbers gathered(ranks, Some(ranks, 700));
    RequireOk(coded(CollectiveKind::kAllGather, gathered));
    round_all(gathered);
    CHECK(gathered.Gathered());
    CHECK(crowd.office().highest_channel < kCodedMessageSizes);
  }
}

}  // namespace
}  // namespace trireme::comm
