// Parity of the memories of a group of nodes (docs/formats/parity.md): any `parity` of `members`
// may be lost, and what they held comes back from the others. Each member has `members` blocks, its
// own data first, then parity. One rule says what goes where: block b of member q belongs to stripe
// (q + b) mod members, and is number b of that stripe's Reed-Solomon code.
// Pure: no disk, no threads, no sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::checkpoint {

// Of docs/formats/parity.md.
inline constexpr uint32_t kParityVersion = 1;
// The numbers of a member's blocks are elements of GF(2^8).
inline constexpr uint32_t kMaxParityMembers = 255;
// So that no sum of sizes overflows.
inline constexpr uint64_t kMaxParityDataBytes = uint64_t{1} << 48;

// A block by who has it, and by its stripe. Below ParityShape::data() it is data, else parity.
struct MemberBlock {
  uint32_t member = 0;
  uint32_t block = 0;

  friend bool operator==(const MemberBlock&, const MemberBlock&) = default;
};
struct StripeBlock {
  uint32_t stripe = 0;
  uint32_t block = 0;
};

struct ParityShape {
  uint32_t members = 1;
  uint32_t parity = 0;

  // Blocks of data of each member, and of each stripe.
  constexpr uint32_t data() const { return members - parity; }
  // The rule, both ways.
  constexpr uint32_t StripeOf(MemberBlock at) const { return (at.member + at.block) % members; }
  constexpr uint32_t MemberOf(StripeBlock at) const {
    return (at.stripe + members - at.block) % members;
  }
};

struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// A run of bytes of one member's data, all in one block, and one parity block in which they count.
struct Contribution {
  MemberBlock data;
  MemberBlock parity;
  ByteRange data_bytes;        // Of the member's data.
  uint64_t parity_offset = 0;  // Of the parity memory of the member that keeps it.
};

// Which byte counts where, and the sums. Small, constant, to be copied.
class ParityGroup {
 public:
  // `largest_bytes`: the data of the member that has most. InvalidArgument for what cannot be.
  static absl::StatusOr<ParityGroup> Make(ParityShape shape, uint64_t largest_bytes);

  ParityShape shape() const { return shape_; }
  uint64_t block_bytes() const { return block_bytes_; }
  // Of the parity memory of each member; it begins as zeros.
  uint64_t parity_bytes() const { return shape_.parity * block_bytes_; }

  // The bytes of `block` that a member with `member_bytes` of data has; the others of a data block
  // are zeros that nobody stores.
  uint64_t StoredBytes(uint32_t block, uint64_t member_bytes) const;

  // Where `range` of the data of `member` counts: for each block that it touches, in order, the
  // parity blocks shape().data() to shape().members - 1, each of another member.
  std::vector<Contribution> Contributions(uint32_t member, ByteRange range) const;

  // Adds `piece` to the parity that a member keeps: the bytes of `to`, xor what they were when they
  // were last added. Pieces come in any order. `parity_memory` is all of the keeper's.
  void Add(const Contribution& to, std::span<const std::byte> piece,
           std::span<std::byte> parity_memory) const;

 private:
  ParityGroup(ParityShape shape, uint64_t block_bytes) : shape_(shape), block_bytes_(block_bytes) {}

  ParityShape shape_;
  uint64_t block_bytes_;
};

// How the blocks of one stripe that are lost come from those that are left. Any range of the blocks
// may be rebuilt alone.
class StripeRebuild {
 public:
  // `lost`: different members, in any order. DataLoss, with their numbers, if they are more than
  // shape.parity. The shape is that of a group.
  static absl::StatusOr<StripeRebuild> Plan(ParityShape shape, uint32_t stripe,
                                            std::span<const uint32_t> lost);

  // The shape.data() blocks to read, and one of each lost member that is rebuilt; by number.
  const std::vector<MemberBlock>& sources() const { return sources_; }
  const std::vector<MemberBlock>& targets() const { return targets_; }

  // Adds what the same range of sources()[source] gives to a piece of each target. `rebuilt` begin
  // as zeros and are right when each source has been added once, in any order. A piece that is
  // shorter than they are ends in zeros.
  void Add(size_t source, std::span<const std::byte> piece,
           std::span<const std::span<std::byte>> rebuilt) const;

 private:
  StripeRebuild() = default;
  void Weigh(ParityShape shape);

  std::vector<MemberBlock> sources_;
  std::vector<MemberBlock> targets_;
  std::vector<std::vector<uint8_t>> weights_;  // Of each target, by source.
};

}  // namespace trireme::checkpoint
