#include "checkpoint/format/parity.h"

#include <isa-l/erasure_code.h>

#include <algorithm>

#include "absl/strings/str_join.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/check.h"
#include "runtime/base/text.h"
#include "runtime/checksum/upper_halves.h"

namespace trireme::checkpoint {
namespace {

using base::Text;

// (k xor d) / (p xor d), of the numbers of a parity and a data block.
uint8_t Coefficient(ParityShape shape, uint32_t parity_block, uint32_t data_block) {
  return gf_mul(static_cast<uint8_t>(shape.data() ^ data_block),
                gf_inv(static_cast<uint8_t>(parity_block ^ data_block)));
}

// sum += weight * piece. ISA-L multiplies by a table of 32 bytes, which costs less to make than to
// keep; it takes int lengths and pointers that are not const.
void AddProduct(uint8_t weight, std::span<const std::byte> piece, std::span<std::byte> sum) {
  TRIREME_CHECK(piece.size() <= sum.size());
  unsigned char table[32];
  ec_init_tables(1, 1, &weight, table);
  while (!piece.empty()) {
    const size_t chunk = std::min<size_t>(piece.size(), size_t{1} << 30);
    auto* from = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data()));
    auto* to = reinterpret_cast<unsigned char*>(sum.data());
    ec_encode_data_update(static_cast<int>(chunk), 1, 1, 0, table, from, &to);
    piece = piece.subspan(chunk);
    sum = sum.subspan(chunk);
  }
  checksum::ClearUpperHalves();
}

uint64_t DivideUp(uint64_t bytes, uint64_t by) { return bytes / by + (bytes % by != 0 ? 1 : 0); }

}  // namespace

absl::StatusOr<ParityGroup> ParityGroup::Make(ParityShape shape, uint64_t largest_bytes) {
  if (shape.members < 1 || shape.members > kMaxParityMembers) {
    return absl::InvalidArgumentError(
        Text("a parity group of ", shape.members, " members; expected 1 to ", kMaxParityMembers));
  }
  if (shape.parity >= shape.members) {
    return absl::InvalidArgumentError(
        Text("a parity group of ", base::Counted(shape.members, "member"), " cannot outlive ",
             shape.parity, " of them; expected parity of at most ", shape.members - 1));
  }
  if (largest_bytes > kMaxParityDataBytes) {
    return absl::InvalidArgumentError(Text("a member of a parity group with ", largest_bytes,
                                           " bytes; expected at most ", kMaxParityDataBytes));
  }
  const uint64_t block_bytes = DivideUp(largest_bytes, shape.data());
  return ParityGroup(shape, PieceCount(block_bytes) * kPieceBytes);
}

uint64_t ParityGroup::StoredBytes(uint32_t block, uint64_t member_bytes) const {
  TRIREME_CHECK(block < shape_.members && member_bytes <= shape_.data() * block_bytes_);
  if (block >= shape_.data()) return block_bytes_;
  const uint64_t begin = block * block_bytes_;
  return std::min(std::max(member_bytes, begin) - begin, block_bytes_);
}

std::vector<Contribution> ParityGroup::Contributions(uint32_t member, ByteRange range) const {
  TRIREME_CHECK(member < shape_.members && range.begin <= range.end);
  TRIREME_CHECK(range.end <= shape_.data() * block_bytes_);
  std::vector<Contribution> found;
  for (uint64_t begin = range.begin; begin < range.end;) {
    const auto data_block = static_cast<uint32_t>(begin / block_bytes_);
    const uint64_t offset = begin % block_bytes_;
    const uint64_t end = std::min(range.end, begin - offset + block_bytes_);
    const uint32_t stripe = shape_.StripeOf({member, data_block});
    for (uint32_t block = shape_.data(); block < shape_.members; ++block) {
      found.push_back({.data = {member, data_block},
                       .parity = {shape_.MemberOf({stripe, block}), block},
                       .data_bytes = {begin, end},
                       .parity_offset = (block - shape_.data()) * block_bytes_ + offset});
    }
    begin = end;
  }
  return found;
}

void ParityGroup::Add(const Contribution& to, std::span<const std::byte> piece,
                      std::span<std::byte> parity_memory) const {
  TRIREME_CHECK(parity_memory.size() == parity_bytes());
  TRIREME_CHECK(piece.size() == to.data_bytes.end - to.data_bytes.begin);
  AddProduct(Coefficient(shape_, to.parity.block, to.data.block), piece,
             parity_memory.subspan(to.parity_offset, piece.size()));
}

absl::StatusOr<StripeRebuild> StripeRebuild::Plan(ParityShape shape, uint32_t stripe,
                                                  std::span<const uint32_t> lost) {
  const uint32_t n = shape.members;
  TRIREME_CHECK(n <= kMaxParityMembers && stripe < n && shape.parity < n);
  std::vector<bool> is_lost(n);
  for (const uint32_t member : lost) {
    TRIREME_CHECK(member < n && !is_lost[member]);
    is_lost[member] = true;
  }
  if (lost.size() > shape.parity) {
    return absl::DataLossError(Text("members ", absl::StrJoin(lost, ", "), " of a parity group of ",
                                    n, " are lost; its parity makes up for ", shape.parity));
  }
  StripeRebuild rebuild;
  for (uint32_t block = 0; block < n; ++block) {
    const MemberBlock at = {shape.MemberOf({stripe, block}), block};
    if (is_lost[at.member]) {
      rebuild.targets_.push_back(at);
    } else if (rebuild.sources_.size() < shape.data()) {
      rebuild.sources_.push_back(at);
    }
  }
  rebuild.Weigh(shape);
  return rebuild;
}

// By number, the first `known` sources are data, and the others are as many parity blocks as data
// blocks are lost, which in turn are the first targets. What such a parity block holds beyond the
// known data's part is a sum of the lost data, with the coefficients in its row of `square`.
void StripeRebuild::Weigh(ParityShape shape) {
  const size_t known = std::count_if(sources_.begin(), sources_.end(), [&](const MemberBlock& at) {
    return at.block < shape.data();
  });
  const size_t unknown = sources_.size() - known;
  const auto known_part = [&](uint32_t parity_block) {
    std::vector<uint8_t> row(sources_.size());
    for (size_t source = 0; source < known; ++source) {
      row[source] = Coefficient(shape, parity_block, sources_[source].block);
    }
    return row;
  };
  std::vector<std::vector<uint8_t>> beyond;  // Of each parity source, over the sources.
  std::vector<uint8_t> square;
  for (size_t source = known; source < sources_.size(); ++source) {
    const uint32_t block = sources_[source].block;
    beyond.push_back(known_part(block));
    beyond.back()[source] = 1;
    for (size_t lost = 0; lost < unknown; ++lost) {
      square.push_back(Coefficient(shape, block, targets_[lost].block));
    }
  }
  std::vector<uint8_t> inverse(square.size());
  TRIREME_CHECK(gf_invert_matrix(square.data(), inverse.data(), static_cast<int>(unknown)) == 0);

  const auto add = [](uint8_t factor, const std::vector<uint8_t>& row, std::vector<uint8_t>& sum) {
    AddProduct(factor, std::as_bytes(std::span(row)), std::as_writable_bytes(std::span(sum)));
  };
  for (size_t target = 0; target < targets_.size(); ++target) {
    const uint32_t block = targets_[target].block;
    std::vector<uint8_t> row(sources_.size());
    if (target >= unknown) row = known_part(block);
    for (size_t i = 0; i < unknown; ++i) {
      if (target < unknown) {
        add(inverse[target * unknown + i], beyond[i], row);
      } else {
        add(Coefficient(shape, block, targets_[i].block), weights_[i], row);
      }
    }
    weights_.push_back(std::move(row));
  }
}

void StripeRebuild::Add(size_t source, std::span<const std::byte> piece,
                        std::span<const std::span<std::byte>> rebuilt) const {
  TRIREME_CHECK(source < sources_.size() && rebuilt.size() == targets_.size());
  for (size_t target = 0; target < targets_.size(); ++target) {
    AddProduct(weights_[target][source], piece, rebuilt[target]);
  }
}

}  // namespace trireme::checkpoint
