// The choice: which algorithm serves which collective, and every border at which it changes. Pure,
// by what all ranks of a group know alike. Tests take their sizes from the names here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace trireme::comm {

enum class CollectiveKind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

enum class AlgorithmKind : uint8_t {
  kNone,        // a rank alone, or no elements
  kExchange,    // everybody to everybody: one hop, n(n-1) messages
  kTree,        // up a tree and down again: 2(n-1) messages
  kGatherTree,  // likewise, of shares that are not added
  kRing,        // n-1 hops or twice as many, n-1 messages or more a rank
  kBroadcast,
  kBoard,   // posted by all, read by all: one hop, without a message
  kDirect,  // through the window
  kMapped,  // where the data lie, if all ranks find them in node memory
  kCoded,
};

// A sum of up to so many bytes is about latency, not bandwidth.
inline constexpr int64_t kSmallSumBytes = 8 << 10;
// Most ranks whose small sums are one hop: the n(n-1) messages of an exchange, all of them the
// whole sum long, against the 2(n-1) of a tree.
inline constexpr int kExchangeSumRanks = 4;
// Shares (the largest of them) up to here go by one hop ...
inline constexpr int64_t kExchangeShareBytes = 16 << 10;
// ... but small data do so only in groups of up to so many ranks: beyond, a rank's 2(n-1) messages
// (0.4 us each, docs/adr/0003) cost more than the hops of a tree, and a job of 3,072 ranks would
// send 9.4 million messages for one number of each.
inline constexpr int kExchangeShareRanks = 16;
// Small is what has no more than this a rank, all shares together. A tree of 8 children a node
// sends every byte about 8 times on each of its up to 4 levels, a ring or chain of n ranks has a
// latency for each of n hops: at 2 us a hop and 10 GB/s they are even at about 650 bytes a rank.
inline constexpr int64_t kTreeBytesPerRank = 512;
inline constexpr int kTreeArity = 8;
// A broadcast up to here goes down a tree in a group of any size, in pieces.
inline constexpr int64_t kBroadcastTreeBytes = 64 << 10;
inline constexpr int64_t kBroadcastPieceBytes = 256 << 10;
inline constexpr size_t kBroadcastDepth = 4;  // pieces under way
// Of a ring.
inline constexpr size_t kRingDepth = 4;  // pieces under way in each direction
inline constexpr int64_t kRingPieceBytes = 4
                                           << 20;  // at most; one that adds, a part of the staging
// Up to here a rank posts all it has to say at once ...
inline constexpr int64_t kPostBytes = 8 << 10;
// ... where all posts, which each rank reads and adds, have no more than this together.
inline constexpr int64_t kBoardBytes = 64 << 10;
// From here on a node memory is worth two meetings.
inline constexpr int64_t kMappedBytes = 16 << 10;
// Larger sums go through the window; up to here a message's latency beats its polling, where the
// board does not serve.
inline constexpr int64_t kWindowBytes = 1 << 10;

// No message of a collective is larger, whatever Transport::max_message_bytes says of callers'.
inline constexpr int64_t kMostPieceBytes = kRingPieceBytes;

struct CallShape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int ranks = 1;
  int64_t bytes = 0;                // of all shares
  int64_t largest_share_bytes = 0;  // of ReduceScatter and AllGather
  int64_t staging_bytes = 0;        // of a lane
  bool coded = false;
  bool window = false;
  bool node_memory = false;  // the fabric has made some
};

// Most bytes that take a tree in a large group.
constexpr int64_t TreeBytes(int ranks) {
  return std::min(std::max(kSmallSumBytes, ranks * kTreeBytesPerRank), kMostPieceBytes);
}
// The same where they are added: the children's all lie in the staging memory.
constexpr int64_t TreeSumBytes(int ranks, int64_t staging_bytes) {
  return std::min(TreeBytes(ranks), staging_bytes / kTreeArity);
}
// Most bytes that a rank posts.
constexpr int64_t PostBytes(int ranks) { return std::min(kPostBytes, kBoardBytes / ranks); }
// Most bytes of the largest share that an exchange takes.
constexpr int64_t ExchangeShareBytes(int ranks, int64_t staging_bytes) {
  return std::min(kExchangeShareBytes, staging_bytes / std::max(ranks - 1, 1));
}
// Bytes of a ring's piece.
constexpr int64_t RingPieceBytes(bool adds, int64_t staging_bytes) {
  constexpr int64_t kLine = 64;
  return adds ? std::min(kRingPieceBytes, staging_bytes / int64_t{kRingDepth} / kLine * kLine)
              : kRingPieceBytes;
}
// Most bytes of a broadcast that goes down a tree; above, along a chain. Over a tree the bytes
// leave each node 8 times, in a chain once, but each of n-2 ranks between holds up a piece. Even
// where
//   8 (bytes + 4 pieces) = bytes + (n - 2) pieces.
constexpr int64_t BroadcastTreeBytes(int ranks) {
  constexpr int kLevels = 4;
  return std::max(kBroadcastTreeBytes,
                  (ranks - 2 - kTreeArity * kLevels) * kBroadcastPieceBytes / (kTreeArity - 1));
}

AlgorithmKind Choose(const CallShape& shape);
// Of these a group runs one at a time.
constexpr bool RunsInWindow(AlgorithmKind kind) {
  return kind == AlgorithmKind::kBoard || kind == AlgorithmKind::kDirect ||
         kind == AlgorithmKind::kMapped;
}

}  // namespace trireme::comm
