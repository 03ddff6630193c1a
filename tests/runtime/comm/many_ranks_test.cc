// Groups of 16 to 300 ranks as threads, every collective at every border of the choice of algorithm
// (runtime/comm/choice.h): just below, at and just above it, against a straight sum. Worth most
// under the address sanitizer: a message that does not fit where it is staged.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/comm/choice.h"
#include "runtime/comm/coded.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/comm/window.h"
#include "tests/runtime/comm/coded_cases.h"
#include "tests/sanitizer.h"

namespace trireme::comm {
namespace {

using base::Text;

// Two cores may be shared by 300 threads: a rank can stand still for long.
constexpr milliseconds kPatience{120000};
// The most ranks of a case.
constexpr int kMany = tests::kThreadSanitizer ? 100 : 300;
constexpr int64_t kMostMemory = 256 << 20;  // of all ranks' data, for the larger cases

// One call. Shares as offsets; those of AllReduce only say how many elements there are.
struct ManyCase {
  std::string name;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<int64_t> offsets;
  int root = 0;
  ReduceOp op = ReduceOp::kSum;
  bool apart = false;  // the own share lies outside the data

  int64_t count() const { return offsets.back() - offsets.front(); }
};

template <typename T>
CallShape ShapeOf(const ManyCase& one, int ranks, const FabricOptions& options) {
  int64_t largest = 0;
  for (size_t r = 1; r < one.offsets.size(); ++r)
    largest = std::max(largest, one.offsets[r] - one.offsets[r - 1]);
  return {.kind = one.kind,
          .ranks = ranks,
          .bytes = one.count() * int64_t{sizeof(T)},
          .largest_share_bytes = largest * int64_t{sizeof(T)},
          .staging_bytes = static_cast<int64_t>(options.staging_bytes),
          .window = options.window_bytes > 0};
}

std::vector<int64_t> Whole(int64_t count) { return {0, count}; }

// All shares alike: what is staged is as much as it can be for this largest share.
std::vector<int64_t> Alike(int ranks, int64_t each) {
  std::vector<int64_t> offsets = {5};
  for (int r = 0; r < ranks; ++r) offsets.push_back(offsets.back() + each);
  return offsets;
}

// `count` elements in shares of all sizes, every third empty, the last one large.
std::vector<int64_t> Uneven(int ranks, int64_t count) { return UnevenOffsets(ranks, count); }

// The first, the last and the ranks about 8 and 64 have `each` elements and some more.
std::vector<int64_t> Few(int ranks, int64_t each) {
  std::vector<int64_t> offsets = {5};
  for (int r = 0; r < ranks; ++r) {
    const bool has = r == 0 || r == ranks - 1 || r == 8 || r == 63 || r == 64;
    offsets.push_back(offsets.back() + (has ? each + r % 5 : 0));
  }
  return offsets;
}

// What all ranks' data add up to, each after the other: independent of any algorithm.
template <typename T>
std::vector<T> Expected(const ManyCase& one, int ranks) {
  std::vector<T> result(static_cast<size_t>(one.count()));
  const auto sharer = [&](int64_t i) {
    const auto after = std::upper_bound(one.offsets.begin(), one.offsets.end(), i + one.offsets[0]);
    return static_cast<int>(after - one.offsets.begin()) - 1;
  };
  for (int64_t i = 0; i < one.count(); ++i) {
    T& value = result[static_cast<size_t>(i)];
    if (one.kind == CollectiveKind::kBroadcast) {
      value = Value<T>(one.root, i);
    } else if (one.kind == CollectiveKind::kAllGather) {
      value = Value<T>(sharer(i), i);
    } else {
      value = Value<T>(0, i);
      for (int r = 1; r < ranks; ++r) {
        const T other = Value<T>(r, i);
        value = one.op == ReduceOp::kSum ? value + other : std::max(value, other);
      }
    }
  }
  return result;
}

template <typename T>
absl::Status RunCase(Communicator& comm, const ManyCase& one, const std::vector<T>& expected) {
  auto stream = tensor::MakeInlineStream();
  std::vector<T> data(static_cast<size_t>(one.count()));
  for (int64_t i = 0; i < one.count(); ++i) data[static_cast<size_t>(i)] = Value<T>(comm.rank(), i);
  Ticket ticket;
  size_t begin = 0, end = data.size();
  std::vector<T> share;
  if (one.kind == CollectiveKind::kReduceScatter || one.kind == CollectiveKind::kAllGather) {
    begin = static_cast<size_t>(one.offsets[static_cast<size_t>(comm.rank())] - one.offsets[0]);
    end = static_cast<size_t>(one.offsets[static_cast<size_t>(comm.rank()) + 1] - one.offsets[0]);
    share.assign(data.begin() + begin, data.begin() + end);
    if (one.apart && one.kind == CollectiveKind::kAllGather)
      std::fill(data.begin() + begin, data.begin() + end, T{0});
  }
  const Sharded sharded{data.data(), one.offsets, TypeOf<T>(), one.apart ? share.data() : nullptr};
  switch (one.kind) {
    case CollectiveKind::kAllReduce:
      ticket = comm.AllReduce(data.data(), one.count(), TypeOf<T>(), one.op, *stream);
      break;
    case CollectiveKind::kReduceScatter:
      ticket = comm.ReduceScatter(sharded, *stream);
      break;
    case CollectiveKind::kAllGather:
      ticket = comm.AllGather(sharded, *stream);
      begin = 0, end = data.size();
      break;
    case CollectiveKind::kBroadcast:
      ticket = comm.Broadcast(std::as_writable_bytes(std::span(data)), one.root, *stream);
      break;
  }
  RETURN_IF_ERROR(base::Annotate(comm.WaitHost(ticket, kPatience), one.name));
  if (one.apart && one.kind == CollectiveKind::kReduceScatter)
    std::copy(share.begin(), share.end(), data.begin() + begin);
  if (end == begin || std::memcmp(&data[begin], &expected[begin], (end - begin) * sizeof(T)) == 0) {
    return absl::OkStatus();
  }
  for (size_t i = begin; i < end; ++i) {
    if (data[i] == expected[i]) continue;
    return absl::InternalError(Text(one.name, ": element ", i, " of ", data.size(), " on rank ",
                                    comm.rank(), " is ", data[i], ", expected ", expected[i]));
  }
  return absl::OkStatus();
}

template <typename T>
void RunMany(int ranks, const std::vector<ManyCase>& cases, const LocalOptions& options) {
  std::vector<std::vector<T>> expected;
  for (const ManyCase& one : cases) expected.push_back(Expected<T>(one, ranks));
  const auto statuses = RunRanks(
      ranks,
      [&](Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto comm, fabric.Group(All(ranks), "many"));
        for (size_t i = 0; i < cases.size(); ++i)
          RETURN_IF_ERROR(RunCase<T>(*comm, cases[i], expected[i]));
        return absl::OkStatus();
      },
      options);
  for (const absl::Status& status : statuses) {
    INFO(ranks << " ranks: " << status.ToString());
    REQUIRE(status.ok());
  }
}

LocalOptions Options(size_t staging_bytes) {
  LocalOptions options;
  options.fabric.operations = 8;
  options.fabric.lanes = 1;
  options.fabric.staging_bytes = staging_bytes;
  return options;
}

// A border: up to `bytes` one algorithm serves, above it another.
struct Border {
  int64_t bytes = 0;
  AlgorithmKind up_to = AlgorithmKind::kNone;
  AlgorithmKind above = AlgorithmKind::kNone;
};

// The cases about one border, `shape` making the shares of so many elements. Says so where the
// choice does not change there: then the border is not what the test takes it for.
template <typename T, typename Shape>
void AddBorder(const char* what, CollectiveKind kind, int ranks, const FabricOptions& options,
               const Border& border, Shape shape, std::vector<ManyCase>* cases) {
  const int64_t at = border.bytes / int64_t{sizeof(T)};
  for (const int64_t elements : {at - 1, at, at + 1}) {
    ManyCase one{.name = Text(what, " of ", elements, " elements of ", sizeof(T), " bytes"),
                 .kind = kind,
                 .offsets = shape(elements)};
    const AlgorithmKind chosen = Choose(ShapeOf<T>(one, ranks, options));
    INFO(one.name << " on " << ranks << " ranks");
    REQUIRE(chosen == (elements <= at ? border.up_to : border.above));
    cases->push_back(one);
    if (kind != CollectiveKind::kReduceScatter && kind != CollectiveKind::kAllGather) continue;
    one.name += ", the own share apart";
    one.apart = true;
    cases->push_back(std::move(one));
  }
}

// All borders between exchange, trees and ring, of one type.
template <typename T>
std::vector<ManyCase> BordersOfChoice(int ranks, const FabricOptions& options) {
  const auto staging = static_cast<int64_t>(options.staging_bytes);
  std::vector<ManyCase> cases;
  const bool large = ranks > kExchangeShareRanks;
  const auto add = [&](const char* what, CollectiveKind kind, const Border& border, auto shape) {
    AddBorder<T>(what, kind, ranks, options, border, shape, &cases);
  };
  const auto uneven = [ranks](int64_t count) { return Uneven(ranks, count); };
  const auto alike = [ranks](int64_t each) { return Alike(ranks, each); };
  const auto few = [ranks](int64_t each) { return Few(ranks, each); };

  add("AllReduce, small", CollectiveKind::kAllReduce,
      {ranks <= kExchangeSumRanks ? kSmallSumBytes : TreeSumBytes(ranks, staging),
       ranks <= kExchangeSumRanks ? AlgorithmKind::kExchange : AlgorithmKind::kTree,
       AlgorithmKind::kRing},
      Whole);
  const int64_t one_hop = ExchangeShareBytes(ranks, staging);
  for (const CollectiveKind kind : {CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
    const bool adds = kind == CollectiveKind::kReduceScatter;
    const char* name = adds ? "ReduceScatter" : "AllGather";
    const int64_t tree = adds ? TreeSumBytes(ranks, staging) : TreeBytes(ranks);
    const AlgorithmKind by_tree = adds ? AlgorithmKind::kTree : AlgorithmKind::kGatherTree;
    // Where even shares of the least staged are too many for a tree: the border of one hop.
    const bool hops = !large || one_hop / int64_t{sizeof(T)} * int64_t{sizeof(T)} * ranks -
                                        int64_t{sizeof(T)} * ranks >
                                    tree;
    if (hops) {
      add(name, kind, {one_hop, AlgorithmKind::kExchange, AlgorithmKind::kRing}, alike);
    }
    if (large) {
      const ManyCase above{.kind = kind, .offsets = uneven(tree / int64_t{sizeof(T)} + 1)};
      add(name, kind, {tree, by_tree, Choose(ShapeOf<T>(above, ranks, options))}, uneven);
    }
    // A ring's pieces: one, and as many as are under way at a time.
    if (!adds) continue;
    const int64_t piece = RingPieceBytes(adds, staging);
    for (const int64_t bytes : {piece, int64_t{kRingDepth} * piece}) {
      if (bytes * 5 <= tree || bytes <= one_hop || bytes * 5 * ranks > kMostMemory) continue;
      add(name, kind, {bytes, AlgorithmKind::kRing, AlgorithmKind::kRing}, few);
    }
  }
  return cases;
}

std::vector<ManyCase> Broadcasts(int ranks, int64_t most_bytes) {
  std::vector<ManyCase> cases;
  for (const int64_t border :
       {int64_t{4}, kBroadcastTreeBytes, BroadcastTreeBytes(ranks), kBroadcastPieceBytes,
        int64_t{kBroadcastDepth} * kBroadcastPieceBytes,
        2 * int64_t{kBroadcastDepth} * kBroadcastPieceBytes}) {
    if (border > most_bytes) continue;
    for (const int64_t count : {border / 4 - 1, border / 4, border / 4 + 1}) {
      const int root = static_cast<int>(cases.size()) * 7 % ranks;
      cases.push_back({.name = Text("Broadcast of ", 4 * count, " bytes from ", root),
                       .kind = CollectiveKind::kBroadcast,
                       .offsets = Whole(count),
                       .root = root});
    }
  }
  return cases;
}

TEST_CASE("many ranks: ReduceScatter by exchange stages no more than its lane holds") {
  constexpr int kRanks = 65;
  const LocalOptions options = Options(FabricOptions{}.staging_bytes);
  const ManyCase one{.name = "a lane filled to the last byte",
                     .kind = CollectiveKind::kReduceScatter,
                     .offsets = Alike(kRanks, kExchangeShareBytes / int64_t{sizeof(float)})};
  const CallShape shape = ShapeOf<float>(one, kRanks, options.fabric);
  REQUIRE(Choose(shape) == AlgorithmKind::kExchange);
  REQUIRE(shape.largest_share_bytes * (kRanks - 1) == shape.staging_bytes);
  RunMany<float>(kRanks, {one}, options);
}

TEST_CASE("many ranks: every border of the choice, up to 65 ranks") {
  for (const int ranks : {2, kExchangeSumRanks, kExchangeSumRanks + 1, kExchangeShareRanks,
                          kExchangeShareRanks + 1, 64, 65}) {
    const LocalOptions options = Options(64 << 10);
    RunMany<float>(ranks, BordersOfChoice<float>(ranks, options.fabric), options);
    RunMany<double>(ranks, BordersOfChoice<double>(ranks, options.fabric), options);
    RunMany<int32_t>(ranks,
                     {{.name = "AllReduce max of i32",
                       .offsets = Whole(TreeBytes(ranks) / 4),
                       .op = ReduceOp::kMax},
                      {.name = "AllReduce max of i32, above",
                       .offsets = Whole(TreeBytes(ranks) / 4 + 1),
                       .op = ReduceOp::kMax}},
                     options);
  }
}

TEST_CASE("many ranks: every border of the choice, 65 ranks with the lanes of a job") {
  const LocalOptions options = Options(FabricOptions{}.staging_bytes);
  RunMany<float>(65, BordersOfChoice<float>(65, options.fabric), options);
}

TEST_CASE("many ranks: every border of the choice, 128 and 129 ranks") {
  for (const int ranks : {128, 129}) {
    const LocalOptions options = Options(64 << 10);
    RunMany<float>(ranks, BordersOfChoice<float>(ranks, options.fabric), options);
  }
}

TEST_CASE("many ranks: every border of the choice, 300 ranks") {
  // The least lane in which more than a tree's data go by one hop.
  const LocalOptions options = Options(256 << 10);
  RunMany<float>(kMany, BordersOfChoice<float>(kMany, options.fabric), options);
}

TEST_CASE("many ranks: broadcasts of one piece and of many, down trees and along chains") {
  for (const int ranks : {2, 9, 10, 34, 35, 65}) {
    if (tests::kThreadSanitizer && ranks > 35) break;
    const int64_t most =
        ranks <= 10 ? 4 << 20 : std::max(BroadcastTreeBytes(ranks), kBroadcastPieceBytes);
    RunMany<float>(ranks, Broadcasts(ranks, most), Options(64 << 10));
  }
  RunMany<float>(kMany, Broadcasts(kMany, kBroadcastPieceBytes), Options(64 << 10));
}

TEST_CASE(
    "many ranks: AllGather of shares of more than one piece, and of more than are under way") {
  const auto piece = kRingPieceBytes / int64_t{sizeof(float)};
  const auto gather = [](int ranks, int64_t each) {
    return ManyCase{.name = Text("AllGather of shares of ", each, " elements"),
                    .kind = CollectiveKind::kAllGather,
                    .offsets = Few(ranks, each)};
  };
  RunMany<float>(
      3, {gather(3, piece - 2), gather(3, piece), gather(3, int64_t{kRingDepth} * piece + 1)},
      Options(64 << 10));
  RunMany<float>(17, {gather(17, piece - 8), gather(17, piece + 1)}, Options(64 << 10));
}

TEST_CASE("many ranks: sums through a window, at its borders") {
  constexpr size_t kPieceBytes = 4096;  // those of 64 ranks under ConnectMpi
  for (const int ranks : {16, 65, 100}) {
    if (tests::kThreadSanitizer && ranks == 100) continue;
    LocalOptions options = Options(64 << 10);
    options.fabric.window_bytes = Window::kDepth * static_cast<size_t>(ranks) * kPieceBytes;
    std::vector<ManyCase> cases;
    AddBorder<float>(
        "AllReduce, window", CollectiveKind::kAllReduce, ranks, options.fabric,
        {std::max(PostBytes(ranks), kWindowBytes),
         PostBytes(ranks) >= kWindowBytes ? AlgorithmKind::kBoard : AlgorithmKind::kTree,
         AlgorithmKind::kDirect},
        Whole, &cases);
    for (const int64_t piece : {int64_t{kPieceBytes}, int64_t{Window::kDepth * kPieceBytes}}) {
      AddBorder<float>(
          "ReduceScatter, window", CollectiveKind::kReduceScatter, ranks, options.fabric,
          {piece, AlgorithmKind::kDirect, AlgorithmKind::kDirect},
          [ranks](int64_t each) { return Few(ranks, each); }, &cases);
    }
    RunMany<float>(ranks, cases, options);
  }
}

// Sums whose bits depend on the order of adding: equal on all ranks, and in a second run.
TEST_CASE("many ranks: sums have the same bits on every rank and in every run") {
  for (const int ranks : {kExchangeShareRanks + 1, 65, 129}) {
    if (tests::kThreadSanitizer && ranks == 129) continue;
    const LocalOptions options = Options(64 << 10);
    const auto staging = static_cast<int64_t>(options.fabric.staging_bytes);
    for (const int64_t count :
         {int64_t{7}, TreeSumBytes(ranks, staging) / 4, TreeSumBytes(ranks, staging) / 4 + 1}) {
      std::vector<std::vector<float>> results(2 * static_cast<size_t>(ranks));
      for (const size_t round : {0u, 1u}) {
        const auto statuses = RunRanks(
            ranks,
            [&](Fabric& fabric) -> absl::Status {
              ASSIGN_OR_RETURN(auto comm, fabric.Group(All(ranks), "many"));
              auto stream = tensor::MakeInlineStream();
              const size_t at = static_cast<size_t>(comm->rank()) * 2 + round;
              std::vector<float>& data = results[at];
              for (int64_t i = 0; i < count; ++i)
                data.push_back(1.0F / static_cast<float>(3 + (i * 7919 + comm->rank() * 31) % 97));
              return comm->WaitHost(
                  comm->AllReduce(data.data(), count, tensor::DType::kF32, ReduceOp::kSum, *stream),
                  kPatience);
            },
            options);
        for (const absl::Status& status : statuses) REQUIRE(status.ToString() == "OK");
      }
      const bool same = std::all_of(results.begin(), results.end(), [&](const auto& one) {
        return SameBits(one, results.front());
      });
      INFO(ranks << " ranks, " << count << " elements");
      CHECK(same);
    }
  }
}

TEST_CASE("many ranks: coded sums, gathers and messages") {
  for (const int ranks : {9, tests::kThreadSanitizer ? 20 : 65}) {
    LocalOptions options = Options(64 << 10);
    options.fabric.operations = 64;
    options.fabric.coding.collective_bytes = LeastCodedBytes(ranks);
    options.fabric.coding.messages = 2;
    const auto statuses = RunRanks(
        ranks,
        [&](Fabric& fabric) -> absl::Status {
          ASSIGN_OR_RETURN(auto comm, fabric.Group(All(ranks), "many"));
          for (const int64_t count : {int64_t{1}, int64_t{ranks - 1}, int64_t{ranks + 300}})
            RETURN_IF_ERROR(CheckCodedSums(*comm, count, true));
          RETURN_IF_ERROR(CheckCodedGather(*comm, 300));
          return CheckCodedMessages(*comm, 3000);
        },
        options);
    for (const absl::Status& status : statuses) {
      INFO(ranks << " ranks: " << status.ToString());
      REQUIRE(status.ok());
    }
  }
}

}  // namespace
}  // namespace trireme::comm
