// Replicas: parameters that several ranks hold and update alike, so their bytes are equal as long
// as every rank, its memory and its links are sound. ReplicaCheck compares them without a message
// of its own: each rank adds the checksum (CRC32C) of what it holds to one sum over all ranks, the
// first of n copies -(n-1) times, the others once. The sum of n equal copies is zero, and it is
// exact: whole numbers below 2^53, since 2 * ranks * 2^32 is that for a million ranks. Copies
// that differ are missed only where their checksums agree (never for damage within 32 bits in a
// row, as of one flipped bit; else one in 2^32) or where several differences add up to zero.
//
// Not seen: what is wrong alike in all copies, as damage of a part that one rank alone updates
// under ZeRO-1, which GATHER hands to the others; and moments, until they have changed a weight.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/training_state.h"
#include "runtime/plan/planner.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

// Thread: the engine's.
class ReplicaCheck {
 public:
  // Over the data, the tensor and the pipeline axis; each sum is zero where all copies agree.
  static constexpr size_t kSums = 3;
  using Sums = std::array<double, kSums>;

  // `plan`, `graph`, `state` and its `arena` must outlive it.
  ReplicaCheck(const v1::Plan& plan, const graph::ModelGraph& graph, const TrainingState& state,
               const plan::Coordinates& at, const Arena& arena);

  // Whether step number `step` (from 0) compares.
  bool Due(uint64_t step) const;
  // What this rank adds; reads every parameter once. Allocates nothing.
  Sums Terms() const;
  static bool Agree(const Sums& sums);

  // To find out who differs. A part is what some ranks hold in common: a parameter, or the cut of
  // it of one tensor coordinate. For each part of the model two numbers, the checksum and its
  // negative, or the least possible where this rank does not hold it: their largest over all ranks
  // tell whether the copies differ.
  std::vector<double> Parts() const;
  // Numbers of the parts that differ.
  static std::vector<size_t> Differing(std::span<const double> largest);
  // Of a part, by what Parts gave; negative: this rank holds none.
  static double ChecksumOf(std::span<const double> parts, size_t part);
  // Of their parameters, cut to a few.
  std::string NamesOf(std::span<const size_t> parts) const;

 private:
  uint32_t SumOver(bool whole_only, bool tied_only) const;
  uint32_t ChecksumOf(const TrainingState::HeldParameter& held, uint32_t before) const;
  size_t PartOf(const TrainingState::HeldParameter& held) const;

  const graph::ModelGraph& graph_;
  const TrainingState& state_;
  const Arena& arena_;
  const v1::Mesh mesh_;
  const plan::Coordinates at_;
  const size_t shares_;  // of the weights over the replicas: 1, or under ZeRO-3 as many as these
  const uint64_t every_;
};

// What the checksums of one part say, by rank; negative: it holds none.
struct ReplicaVerdict {
  std::vector<int> wrong;  // ranks, ascending; those that a majority contradicts, else all
  std::string text;        // "rank 2 differs from ranks 0, 1, 3", or who stands against whom
};
ReplicaVerdict JudgeReplicas(std::span<const double> checksums);

}  // namespace trireme::engine
