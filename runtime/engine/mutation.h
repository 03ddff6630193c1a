// Known bug kinds, for the mutation tests. Which are switched on is decided at link time: programs
// link no_mutation/, which has none; the tests link their own switch.
#pragma once

#include <cstdint>

namespace trireme::engine {

enum class Mutation : uint8_t {
  kMissingSequenceParallelReduce,  // gradients Partial over the tensor axis are not summed over it
  kTiedCountedTwice,               // the tied embedding's gradient is summed twice
  kTiedNotSummed,                  // each copy of the tied embedding keeps its own gradient
  kLocalTokenCount,                // the mean of the replicas' own means is taken for the loss
  kClipByShardNorm,                // clipping by this rank's own norm
  kDataMeanTwice,                  // gradients divided by the number of replicas once more
  kStaleGather,                    // ZeRO: updated parameters are not gathered
  kDropoutPerTensorRank,           // dropout streams differ over the tensor group
  kSkippedMicroBatch,              // weight gradients of the last micro-batch are dropped
  kOverwrittenGradient,            // each micro-batch overwrites instead of adding
  kDecayEverything,                // weight decay on norms and biases too
  kReplicatedNormCounted,          // replicated gradients count once per tensor rank in the norm
  kMissingBackwardReduce,          // input gradients stay Partial over the tensor axis
  kRowOffsetIgnored,               // sequence parallelism: rows counted from 0 on every rank
  kRecomputedDropout,              // what is recomputed draws other dropout than forward
  kMasterNotUpdated,               // bf16: the optimizer begins again from the rounded weight
  kBf16Moment,                     // bf16: the first moment is kept in bf16
  kWeightNotWritten,               // bf16: masters are updated, the weights that products read not
  kWrongGatheredPlace,             // ZeRO-3: a bucket is gathered to the place of another
  kShareOfAnother,                 // ZeRO-2: a replica keeps the share of its neighbour
  kLastMicroBatchOnly,             // ZeRO-2: each micro-batch's share replaces those before
  kGatherBackwardSlices,           // the backward of a gather over the tensor group adds nothing up
  kLargeBucketForgotten,  // a bucket as large as bucket_bytes is not summed over the replicas
  kSequenceRanksInMean,   // ranks that cut the sequence are counted as replicas in the mean
  kTiedCopyCounted,       // both stages' copies of a tied parameter count in the norm
  kLeftInGradientBuffer,  // gradients are added to what their buffer was left with
  kClearedTooEarly,       // ZeRO-2: the first bucket is cleared before it is summed
  kMasksRestart,          // dropout draws the masks of the first step again
  kSwappedFromAnother,    // offload: activations of another micro-batch come back
  kPieceNotWrittenBack,   // offload: updated moments stay behind when their piece goes
  kPieceOfAnother,        // offload: the moments of a bucket's first piece come for all
  kGradientsCut,          // bf16 transfer: gradients are cut to bf16 instead of rounded
  kTileRowsOfFirst,       // the head's weight gradient takes each tile's rows from the first tile
  kTileLossOfFirst,       // softmax of each tile of logits by the first tile's log-sum-exp
  kReplicaLeftOut,        // node memory: a replica's part of the largest bucket is not summed
  kReplicasSummedTwice,   // node memory: the largest bucket is summed over the replicas twice
  kCount,
};

bool Mutated(Mutation mutation);
// The same of work on one bucket, by its index on its stage: a bug that spoils every bucket would
// hide what else it spoils.
bool Mutated(Mutation mutation, uint32_t bucket);

}  // namespace trireme::engine
