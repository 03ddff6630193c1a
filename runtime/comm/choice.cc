#include "runtime/comm/choice.h"

namespace trireme::comm {
namespace {

AlgorithmKind OfSum(const CallShape& shape) {
  if (shape.ranks <= kExchangeSumRanks) {
    return shape.bytes <= kSmallSumBytes ? AlgorithmKind::kExchange : AlgorithmKind::kRing;
  }
  return shape.bytes <= TreeSumBytes(shape.ranks, shape.staging_bytes) ? AlgorithmKind::kTree
                                                                       : AlgorithmKind::kRing;
}

AlgorithmKind OfShares(const CallShape& shape) {
  const bool adds = shape.kind == CollectiveKind::kReduceScatter;
  if (shape.ranks > kExchangeShareRanks) {
    const int64_t most =
        adds ? TreeSumBytes(shape.ranks, shape.staging_bytes) : TreeBytes(shape.ranks);
    if (shape.bytes <= most) return adds ? AlgorithmKind::kTree : AlgorithmKind::kGatherTree;
  }
  // An AllGather needs no staging, but what a rank has to take in at once is bounded alike.
  const bool one_hop =
      shape.largest_share_bytes <= ExchangeShareBytes(shape.ranks, shape.staging_bytes);
  return one_hop ? AlgorithmKind::kExchange : AlgorithmKind::kRing;
}

// None where it does not serve.
AlgorithmKind OfWindow(const CallShape& shape) {
  const bool adds = shape.kind != CollectiveKind::kAllGather;
  const int64_t posted = adds ? shape.bytes : shape.largest_share_bytes;
  if (posted <= PostBytes(shape.ranks)) return AlgorithmKind::kBoard;
  if (shape.node_memory && shape.bytes >= kMappedBytes) return AlgorithmKind::kMapped;
  // What is not added up crosses faster as a message, from the one rank's memory to the other's.
  return adds && shape.bytes > kWindowBytes ? AlgorithmKind::kDirect : AlgorithmKind::kNone;
}

}  // namespace

AlgorithmKind Choose(const CallShape& shape) {
  if (shape.ranks == 1 || shape.bytes == 0) return AlgorithmKind::kNone;
  if (shape.coded) return AlgorithmKind::kCoded;
  if (shape.kind == CollectiveKind::kBroadcast) return AlgorithmKind::kBroadcast;
  const AlgorithmKind of_window = shape.window ? OfWindow(shape) : AlgorithmKind::kNone;
  if (of_window != AlgorithmKind::kNone) return of_window;
  return shape.kind == CollectiveKind::kAllReduce ? OfSum(shape) : OfShares(shape);
}

}  // namespace trireme::comm
