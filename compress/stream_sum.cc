// The trick that makes sums independent of cutting: a lane's code is a function of its value alone,
// found the same way in a block that the fast loop does and in one that it cannot; and a value in a
// verbatim block that a code stands for is taken as that code.
#include "compress/stream_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "compress/block_numbers.h"
#include "compress/lane_quantiser.h"
#include "compress/piece.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/checksum/crc32c.h"

namespace trireme::compress {
namespace {

constexpr char kMagic[8] = {'T', 'R', 'I', 'R', 'C', 'S', 'U', 'M'};
constexpr uint16_t kVersion = 1;
// Of a term: so far apart that no two codes stand for the same f32.
constexpr int32_t kTermCodeLimit = 1 << 22;
constexpr uint32_t kExactBits = 25;  // of numbers that surely are no wide codes
constexpr uint32_t kNan = 0x7fc00000;
constexpr size_t kBlockBytes = kBlockValues * sizeof(float);

struct RawHeader {
  char magic[8];
  uint16_t version;
  uint16_t zero;
  uint32_t terms;
  double step;
  double absolute;
  uint32_t count;
  uint32_t bytes;  // after the header
  uint32_t zero_too;
  uint32_t crc32c;  // of all that is before it and of what follows
};
constexpr size_t kHeaderBytes = 48;
static_assert(sizeof(RawHeader) == kHeaderBytes);

absl::Status Bad(std::string_view what) {
  return absl::DataLossError(base::Text("coded segment: ", what));
}

PieceContext ContextOf(const Quantiser& quantiser, const CodecOptions& options) {
  const Kernels* kernels = options.kernels != nullptr ? options.kernels : &BestKernels();
  PieceContext context{kernels, ConstantsOf(ElementType::kF32, quantiser, kTermCodeLimit)};
  context.constants.keep_zeros = false;
  return context;
}

uint32_t ChecksumOf(std::span<const std::byte> segment) {
  return checksum::Crc32c(segment.subspan(kHeaderBytes),
                          checksum::Crc32c(segment.first(kHeaderBytes - 4)));
}

size_t WriteHeader(const SegmentInfo& info, std::span<std::byte> out, size_t piece_bytes) {
  RawHeader raw = {};
  std::memcpy(raw.magic, kMagic, sizeof(kMagic));
  raw.version = kVersion;
  raw.terms = info.terms;
  raw.step = info.quantiser.step;
  raw.absolute = info.quantiser.absolute;
  raw.count = static_cast<uint32_t>(info.count);
  raw.bytes = static_cast<uint32_t>(piece_bytes);
  std::memcpy(out.data(), &raw, kHeaderBytes);
  raw.crc32c = ChecksumOf(out.first(kHeaderBytes + piece_bytes));
  std::memcpy(out.data() + kHeaderBytes - 4, &raw.crc32c, 4);
  return kHeaderBytes + piece_bytes;
}

// Width bytes and blocks of a segment, as they come to be known.
class PieceWriter {
 public:
  PieceWriter(const PieceContext& context, size_t count, std::span<std::byte> out)
      : context_(context), widths_(out.data() + kPieceHeaderBytes), out_(out), count_(count) {
    at_ = kPieceHeaderBytes + BlocksOf(count);
  }

  // The next block of `values` values, by their residuals, of which `largest` is the largest.
  // `raw` may be null: no lane has bits of its own.
  void Write(const uint32_t* u, uint32_t largest, size_t values, const Bits256* raw_lanes,
             const uint32_t* raw_bits) {
    const Shape shape = context_.kernels->choose_shape(u, largest);
    const size_t raws = raw_lanes == nullptr ? 0 : CountOf(*raw_lanes);
    const size_t raw_bytes = raws == 0 ? 0 : 2 + raws * (1 + sizeof(float));
    if (raws > 255 || shape.bytes + raw_bytes >= values * sizeof(float)) {
      return WriteVerbatim(u, values, raw_lanes, raw_bits);
    }
    WriteNumbers(*context_.kernels, shape, u, out_.subspan(at_));
    at_ += shape.bytes;
    widths_[block_++] =
        static_cast<std::byte>(WidthByte(shape) | (raws > 0 ? kExceptionFlag : uint8_t{0}));
    wide_ |= largest > 2 * static_cast<uint32_t>(kLargestExactCode);
    any_width_ |= widths_[block_ - 1] != std::byte{0};
    if (raws == 0) return;
    out_[at_++] = static_cast<std::byte>(raws);
    out_[at_++] = std::byte{0};
    const std::byte* positions = out_.data() + at_;
    at_ += WritePositions(*raw_lanes, out_.data() + at_);
    for (size_t k = 0; k < raws; ++k, at_ += sizeof(float)) {
      std::memcpy(out_.data() + at_, raw_bits + std::to_integer<size_t>(positions[k]),
                  sizeof(float));
    }
  }

  // A block may be written to the front of it, and then told.
  std::span<std::byte> room() { return out_.subspan(at_); }
  void Wrote(const Shape& shape) {
    at_ += shape.bytes;
    widths_[block_++] = static_cast<std::byte>(WidthByte(shape));
    any_width_ |= widths_[block_ - 1] != std::byte{0};
  }

  void WriteZeros() { widths_[block_++] = std::byte{0}; }

  // A block of plain numbers of at most so many bits, as it stands elsewhere.
  void Copy(uint8_t width_byte, std::span<const std::byte> numbers, uint32_t bits) {
    std::memcpy(out_.data() + at_, numbers.data(), numbers.size());
    at_ += numbers.size();
    widths_[block_++] = static_cast<std::byte>(width_byte);
    any_width_ = true;
    wide_ |= bits > kExactBits;
  }

  // After the last block; returns the bytes of the piece.
  size_t Finish() {
    if (!any_width_) at_ = kPieceHeaderBytes;
    std::memset(out_.data(), 0, kPieceHeaderBytes);
    out_[0] = static_cast<std::byte>(PieceKind::kQuantised);
    out_[2] = static_cast<std::byte>((wide_ ? kWideFlag : 0) | (any_width_ ? 0 : kFlatFlag));
    TRIREME_CHECK(block_ == BlocksOf(count_));
    return at_;
  }

 private:
  static size_t CountOf(const Bits256& lanes) {
    size_t count = 0;
    for (const uint64_t word : lanes) count += static_cast<size_t>(std::popcount(word));
    return count;
  }

  void WriteVerbatim(const uint32_t* u, size_t values, const Bits256* raw_lanes,
                     const uint32_t* raw_bits) {
    for (size_t i = 0; i < values; ++i, at_ += sizeof(float)) {
      const bool raw = raw_lanes != nullptr && ((*raw_lanes)[i / 64] >> (i % 64) & 1) != 0;
      const uint32_t bits =
          raw ? raw_bits[i] : Reconstruct<F32>(FromZigZag(u[i]), context_.constants.step);
      std::memcpy(out_.data() + at_, &bits, sizeof(bits));
    }
    widths_[block_++] = static_cast<std::byte>(kVerbatimBlock);
    any_width_ = true;
  }

  const PieceContext& context_;
  std::byte* widths_;
  std::span<std::byte> out_;
  size_t count_;
  size_t at_ = 0;
  size_t block_ = 0;
  bool wide_ = false;
  bool any_width_ = false;
};

// What quantise_plain_f32 makes of one value; false where it refuses a block for it.
bool FastCode(float x, const StepConstants& c, int32_t* code) {
  constexpr float kRounder = 0x1.8p23F;
  const float rounded = x * static_cast<float>(c.inverse) + kRounder;
  *code =
      static_cast<int32_t>(std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(kRounder));
  const float error = std::fabs(x - (rounded - kRounder) * static_cast<float>(c.step));
  const int32_t distance = *code ^ (*code >> 31);
  return error <= static_cast<float>(c.bound) && distance < c.limit;
}

// Codes by lane, for a block that the fast loop refused.
void SlowCodes(const float* values, const PieceContext& context, int32_t* codes,
               Exceptions* exceptions) {
  uint32_t bits[kBlockValues];
  std::memcpy(bits, values, kBlockBytes);
  QuantiseLanes<F32>(bits, context.constants, codes, exceptions);
  for (size_t i = 0; i < kBlockValues; ++i) {
    int32_t code = 0;
    if (!FastCode(values[i], context.constants, &code)) continue;
    codes[i] = code;
    exceptions->raw[i / 64] &= ~(uint64_t{1} << (i % 64));
  }
}

// A segment being read block by block.
struct Reader {
  PieceHead head;
  ByteSource source;                // at the block
  const std::byte* next = nullptr;  // where the block after a plain one begins

  uint8_t Width(size_t block) const {
    return head.flat ? 0 : std::to_integer<uint8_t>(head.widths[block]);
  }
};

absl::Status OpenSegment(std::span<const std::byte> segment, SegmentInfo* info, Reader* reader) {
  ASSIGN_OR_RETURN(*info, ReadSegmentInfo(segment));
  const char* fault = ReadPieceHead(ElementType::kF32, segment.subspan(kHeaderBytes), info->count,
                                    true, &reader->head);
  if (fault != nullptr) return Bad(fault);
  const PieceHead& head = reader->head;
  if (head.kind != PieceKind::kQuantised || head.predictor != Predictor::kBase || head.base != 0) {
    return Bad("is not of codes with base 0");
  }
  reader->source = {head.payload.data(), head.payload.data() + head.payload.size()};
  return absl::OkStatus();
}

absl::Status CheckIs(const SegmentInfo& info, size_t count, const Quantiser& quantiser) {
  if (info.count == count && info.quantiser.step == quantiser.step &&
      info.quantiser.absolute == quantiser.absolute) {
    return absl::OkStatus();
  }
  return Bad(base::Text("has ", info.count, " values of step ", info.quantiser.step, " and bound ",
                        info.quantiser.absolute, "; expected ", count, " of step ", quantiser.step,
                        " and bound ", quantiser.absolute));
}

}  // namespace

size_t MaxSegmentBytes(size_t count) {
  return kHeaderBytes + kPieceHeaderBytes + BlocksOf(count) + count * sizeof(float);
}

absl::StatusOr<SegmentInfo> ReadSegmentInfo(std::span<const std::byte> segment) {
  if (segment.size() < kHeaderBytes) {
    return Bad(base::Text("has ", segment.size(), " bytes, fewer than its header of 48: cut off?"));
  }
  RawHeader raw;
  std::memcpy(&raw, segment.data(), kHeaderBytes);
  if (std::memcmp(raw.magic, kMagic, sizeof(kMagic)) != 0) return Bad("does not begin TRIRCSUM");
  if (raw.version != kVersion) {
    return Bad(base::Text("version ", raw.version, "; this program reads version 1"));
  }
  if (raw.bytes != segment.size() - kHeaderBytes) {
    return Bad(base::Text("says it has 48 + ", raw.bytes, " bytes, and ", segment.size(),
                          " are there: cut off?"));
  }
  if (ChecksumOf(segment) != raw.crc32c) return Bad("the checksum is wrong");
  if (raw.zero != 0 || raw.zero_too != 0) return Bad("a byte that must be zero is not");
  if (raw.terms == 0) return Bad("is the sum of no terms");
  if (raw.count == 0 || raw.count > kMostSegmentValues) {
    return Bad(base::Text(raw.count, " values; expected 1 to 65536"));
  }
  const bool f32_step = static_cast<double>(static_cast<float>(raw.step)) == raw.step;
  if (!(raw.step >= 0x1p-100 && raw.step <= 0x1p101 && f32_step && std::isfinite(raw.absolute) &&
        raw.step <= 2 * raw.absolute)) {
    return Bad(base::Text("step ", raw.step, " does not fit the bound ", raw.absolute));
  }
  SegmentInfo info;
  info.terms = raw.terms;
  info.count = raw.count;
  info.quantiser = {{BoundMode::kAbsolute, raw.absolute}, raw.absolute, raw.step};
  return info;
}

size_t EncodeSegment(std::span<const float> values, const Quantiser& quantiser,
                     std::span<std::byte> out, const CodecOptions& options) {
  TRIREME_CHECK(!values.empty() && values.size() <= kMostSegmentValues);
  TRIREME_CHECK(quantiser.step > 0 && out.size() >= MaxSegmentBytes(values.size()));
  const PieceContext context = ContextOf(quantiser, options);
  PieceWriter writer(context, values.size(), out.subspan(kHeaderBytes));
  alignas(64) uint32_t u[kBlockValues];
  SmallBlocks small_blocks;
  for (size_t first = 0; first < values.size(); first += kBlockValues) {
    const size_t here = std::min(kBlockValues, values.size() - first);
    const float* block = values.data() + first;
    Shape shape;
    if (here == kBlockValues &&
        small_blocks.Encode(*context.kernels, block, context.constants, writer.room(), &shape)) {
      writer.Wrote(shape);
      continue;
    }
    float filled[kBlockValues];
    if (here < kBlockValues) {
      std::fill(std::copy_n(block, here, filled), filled + kBlockValues, 0.0F);
      block = filled;
    }
    uint32_t largest = 0;
    if (context.kernels->quantise_plain_f32(block, context.constants, u, &largest)) {
      small_blocks.Saw(largest);
      writer.Write(u, largest, here, nullptr, nullptr);
      continue;
    }
    Exceptions exceptions;
    int32_t codes[kBlockValues];
    SlowCodes(block, context, codes, &exceptions);
    Chain unused;
    largest = context.kernels->residuals(Predictor::kBase, codes, 0, &unused, u);
    uint32_t bits[kBlockValues];
    std::memcpy(bits, block, kBlockBytes);
    writer.Write(u, largest, here, &exceptions.raw, bits);
  }
  return WriteHeader({1, values.size(), quantiser}, out, writer.Finish());
}

absl::Status DecodeSegment(std::span<const std::byte> segment, const Quantiser& quantiser,
                           std::span<float> out, const CodecOptions& options) {
  SegmentInfo info;
  Reader reader;
  RETURN_IF_ERROR(OpenSegment(segment, &info, &reader));
  RETURN_IF_ERROR(CheckIs(info, out.size(), quantiser));
  const char* fault =
      DecodePiece<F32>(segment.subspan(kHeaderBytes), out.size(), 0, out.size(),
                       ContextOf(quantiser, options), reinterpret_cast<uint32_t*>(out.data()));
  return fault == nullptr ? absl::OkStatus() : Bad(fault);
}

// One call's readers, and the sums of a block.
class SegmentAdder::Work {
 public:
  Work(size_t most_segments, const CodecOptions& options)
      : options_(options), readers_(most_segments) {}

  absl::StatusOr<size_t> Add(std::span<const std::span<const std::byte>> segments,
                             const SegmentSum& sum, std::span<std::byte> out, size_t* culprit) {
    TRIREME_CHECK(!segments.empty() && segments.size() <= readers_.size());
    TRIREME_CHECK(sum.quantiser.step > 0 && out.size() >= MaxSegmentBytes(sum.count));
    used_ = segments.size();
    SegmentInfo total{0, sum.count, sum.quantiser};
    for (size_t k = 0; k < used_; ++k) {
      *culprit = k;
      SegmentInfo info;
      RETURN_IF_ERROR(OpenSegment(segments[k], &info, &readers_[k]));
      RETURN_IF_ERROR(CheckIs(info, sum.count, sum.quantiser));
      if (info.terms > UINT32_MAX - total.terms) return Bad("has too many terms to add more");
      total.terms += info.terms;
    }
    context_ = ContextOf(sum.quantiser, options_);
    PieceWriter writer(context_, sum.count, out.subspan(kHeaderBytes));
    for (size_t first = 0; first < sum.count; first += kBlockValues) {
      const char* fault = AddBlock(first / kBlockValues, std::min(kBlockValues, sum.count - first),
                                   &writer, culprit);
      if (fault != nullptr) return Bad(fault);
    }
    for (size_t k = 0; k < used_; ++k) {
      *culprit = k;
      if (readers_[k].source.left() != 0) return Bad("has bytes after its last block");
    }
    return WriteHeader(total, out, writer.Finish());
  }

 private:
  const char* AddBlock(size_t block, size_t values, PieceWriter* writer, size_t* culprit) {
    size_t filled = 0;
    size_t last = 0, last_but_one = 0;  // terms that are not all zeros
    uint8_t all_bits = 0;
    for (size_t k = 0; k < used_; ++k) {
      const uint8_t width = readers_[k].Width(block);
      all_bits |= width;
      if (width == 0) continue;
      ++filled;
      last_but_one = last;
      last = k;
    }
    if (filled == 0) {
      writer->WriteZeros();
      return nullptr;
    }
    // Widths of 32 and more alone have the sixth bit.
    const bool plain = (all_bits & kExceptionFlag) == 0 && (all_bits & kWidthMask) < kLargestWidth;
    if (!plain) return AddLanes(block, values, writer, culprit);
    if (filled == 1) return CopyBlock(block, last, writer, culprit);
    if (filled == 2 && values == kBlockValues && AddTwo(block, last_but_one, last, writer)) {
      return nullptr;
    }
    return AddPlain(block, values, writer, culprit);
  }

  // Its only term that is not all zeros is the sum, byte for byte.
  const char* CopyBlock(size_t block, size_t term, PieceWriter* writer, size_t* culprit) {
    ByteSource* source = &readers_[term].source;
    const std::byte* const begin = source->at;
    NumberSizes sizes;
    *culprit = term;
    const char* fault = SkipNumbers(readers_[term].Width(block), source, &sizes);
    if (fault != nullptr) return fault;
    writer->Copy(readers_[term].Width(block), {begin, source->at}, sizes.bits);
    return nullptr;
  }

  // Two terms of small numbers; false for others, and where something is wrong with them.
  bool AddTwo(size_t block, size_t one, size_t other, PieceWriter* writer) {
    ByteSource sources[2] = {readers_[one].source, readers_[other].source};
    PackedNumbers numbers[2];
    PatchCopy copies[2];
    for (size_t k = 0; k < 2; ++k) {
      const uint8_t width = readers_[k == 0 ? one : other].Width(block);
      const char* fault = LocateNumbers(width, kBlockValues, &sources[k], &copies[k], &numbers[k]);
      if (fault != nullptr || numbers[k].bits() > kSmallTermBits) return false;
    }
    Shape shape;
    const std::span<std::byte> room = writer->room();
    if (room.size() < kSmallBlockRoom ||
        !context_.kernels->add_small(numbers[0], numbers[1], &shape, room.data())) {
      return false;
    }
    writer->Wrote(shape);
    readers_[one].source = sources[0];
    readers_[other].source = sources[1];
    return true;
  }

  // As f32 numbers, which are exact while no sum of codes can pass 2^24.
  const char* AddPlain(size_t block, size_t values, PieceWriter* writer, size_t* culprit) {
    const Kernels& kernels = *context_.kernels;
    uint64_t reach = 0;  // twice the largest sum there can be
    size_t terms = 0;
    for (size_t k = 0; k < used_; ++k) {
      const uint8_t width = readers_[k].Width(block);
      ByteSource source = readers_[k].source;
      readers_[k].next = source.at;
      if (width == 0) continue;
      *culprit = k;
      // The sum of the terms so far is in codes_[0].
      if (terms > 1) AddFloats(codes_[1], codes_[0]);
      const char* fault =
          DecodeNumbers(kernels, width, values, 0, 1, &source, codes_[terms == 0 ? 0 : 1]);
      if (fault != nullptr) return fault;
      uint32_t bits = width & kWidthMask;
      if ((width & kPatchFlag) != 0) {
        bits += std::to_integer<uint32_t>(readers_[k].source.at[PackedBytes(bits) + 1]) + 1;
      }
      reach += uint64_t{1} << bits;
      if (reach > 2 * uint64_t{kLargestExactCode}) {
        return AddLanes(block, values, writer, culprit);
      }
      readers_[k].next = source.at;
      ++terms;
    }
    const uint32_t largest = kernels.add(codes_[0], codes_[1], sum_);
    writer->Write(sum_, largest, values, nullptr, nullptr);
    for (size_t k = 0; k < used_; ++k) readers_[k].source.at = readers_[k].next;
    return nullptr;
  }

  static void AddFloats(const float* more, float* sum) {
    for (size_t i = 0; i < kBlockValues; ++i) sum[i] += more[i];
  }

  // Lane by lane: whatever the terms are.
  const char* AddLanes(size_t block, size_t values, PieceWriter* writer, size_t* culprit) {
    std::fill_n(code_sums_, kBlockValues, 0);
    std::fill_n(value_sums_, kBlockValues, -0.0);
    Bits256 not_coded = {};
    for (size_t k = 0; k < used_; ++k) {
      *culprit = k;
      if (const char* fault = AddTerm(&readers_[k], readers_[k].Width(block), values, &not_coded)) {
        return fault;
      }
    }
    for (size_t i = 0; i < kBlockValues; ++i) {
      const bool coded = (not_coded[i / 64] >> (i % 64) & 1) == 0;
      const int64_t code = code_sums_[i];
      if (coded && code > -kStreamCodeLimit && code < kStreamCodeLimit) {
        sum_[i] = ZigZag(static_cast<int32_t>(code));
        continue;
      }
      const double value =
          coded ? static_cast<double>(code) * context_.constants.step : value_sums_[i];
      raw_bits_[i] = std::isnan(value) ? kNan : F32::Round(value);
      not_coded[i / 64] |= uint64_t{1} << (i % 64);
      sum_[i] = 0;
    }
    writer->Write(sum_, *std::max_element(sum_, sum_ + kBlockValues), values, &not_coded,
                  raw_bits_);
    return nullptr;
  }

  const char* AddTerm(Reader* reader, uint8_t width, size_t values, Bits256* not_coded) {
    ByteSource* source = &reader->source;
    uint32_t bits[kBlockValues] = {};
    if (width == kConstantBlock || width == kVerbatimBlock) {
      const size_t bytes = (width == kConstantBlock ? 1 : values) * sizeof(float);
      if (source->left() < bytes) return "ends inside the values of a block";
      std::memcpy(bits, source->at, bytes);
      source->at += bytes;
      if (width == kConstantBlock) std::fill_n(bits + 1, values - 1, bits[0]);
      for (size_t i = 0; i < values; ++i) AddValue(i, bits[i], not_coded);
      return nullptr;
    }
    if (const char* fault = ReadNumbers(*context_.kernels, width, values, source, term_)) {
      return fault;
    }
    Bits256 raw = {};
    if ((width & kExceptionFlag) != 0) {
      if (const char* fault = ReadRaw(source, values, &raw, bits)) return fault;
    }
    for (size_t i = 0; i < values; ++i) {
      if ((raw[i / 64] >> (i % 64) & 1) != 0) {
        AddValue(i, bits[i], not_coded);
      } else {
        AddCode(i, FromZigZag(term_[i]));
      }
    }
    return nullptr;
  }

  // The exceptions of a block. Places of -0 have code 0 and stay so: they add nothing.
  static const char* ReadRaw(ByteSource* source, size_t values, Bits256* raw, uint32_t* bits) {
    constexpr const char* kCut = "ends inside the exceptions of a block";
    if (source->left() < 2) return kCut;
    const auto count = std::to_integer<size_t>(source->at[0]);
    const auto zeros = std::to_integer<size_t>(source->at[1]);
    if (zeros > kBitmapMark) return "a block has an impossible count of -0";
    if (source->left() < 2 + count * (1 + sizeof(float)) + zeros) return kCut;
    const std::byte* positions = source->at + 2;
    if (!PositionsAscend(positions, count, values)) {
      return "positions of exceptions do not ascend inside the block";
    }
    for (size_t k = 0; k < count; ++k) {
      const auto position = std::to_integer<size_t>(positions[k]);
      std::memcpy(bits + position, positions + count + k * sizeof(float), sizeof(float));
      SetBit(raw, position);
    }
    source->at += 2 + count * (1 + sizeof(float)) + zeros;
    return nullptr;
  }

  void AddCode(size_t lane, int32_t code) {
    code_sums_[lane] += code;
    value_sums_[lane] += F32::Value(Reconstruct<F32>(code, context_.constants.step));
  }

  // Terms in a verbatim block are codes where they can be.
  void AddValue(size_t lane, uint32_t bits, Bits256* not_coded) {
    const double value = F32::Value(bits);
    const double near = std::nearbyint(value * context_.constants.inverse);
    if (std::fabs(near) <= kTermCodeLimit) {
      const auto code = static_cast<int32_t>(near);
      if (Reconstruct<F32>(code, context_.constants.step) == bits) return AddCode(lane, code);
    }
    value_sums_[lane] += value;
    SetBit(not_coded, lane);
  }

  CodecOptions options_;
  PieceContext context_;
  std::vector<Reader> readers_;
  size_t used_ = 0;
  alignas(64) uint32_t sum_[kBlockValues];
  alignas(64) uint32_t term_[kBlockValues];
  alignas(64) float codes_[2][kBlockValues];
  int64_t code_sums_[kBlockValues];
  double value_sums_[kBlockValues];
  uint32_t raw_bits_[kBlockValues];
};

SegmentAdder::SegmentAdder(size_t most_segments, const CodecOptions& options)
    : work_(std::make_unique<Work>(most_segments, options)) {}
SegmentAdder::~SegmentAdder() = default;

absl::StatusOr<size_t> SegmentAdder::Add(std::span<const std::span<const std::byte>> segments,
                                         const SegmentSum& sum, std::span<std::byte> out) {
  return work_->Add(segments, sum, out, &culprit_);
}

}  // namespace trireme::compress
