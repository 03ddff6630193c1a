// The number of a frame is in its header, so that one that is lost or repeated is named as such,
// and in the nonce of its tag, so that no header can be believed in another place than its own.
#include "checkpoint/format/frame.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "checkpoint/format/little_endian.h"
#include "checkpoint/format/parity.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace trireme::checkpoint {
namespace {

constexpr std::array<std::byte, 4> kFrameMagic{std::byte{'T'}, std::byte{'R'}, std::byte{'F'},
                                               std::byte{'R'}};
constexpr size_t kFrameVersionAt = 4, kFrameKindAt = 5, kFrameMemberAt = 6, kFrameBlockAt = 7,
                 kFrameNumberAt = 8;
constexpr size_t kFrameAttemptAt = 16, kFrameRoundAt = 24, kFrameOffsetAt = 32, kFrameBytesAt = 40,
                 kFramePayloadAt = 44;
constexpr size_t kFrameTagAt = 48;

// What a kind allows. Whether `bytes` is that of the payload is a rule of its own.
struct KindRule {
  const char* name;
  uint32_t least_payload, most_payload;
  bool about_bytes;  // else member, block, offset and bytes are zero
};

const KindRule* RuleOf(FrameKind kind) {
  static constexpr KindRule kRules[] = {{"message", 1, kMostMessageBytes, false},
                                        {"small thing", 1, kMostPieceBytes, true},
                                        {"piece", 1, kMostPieceBytes, true},
                                        {"same", 0, 0, true},
                                        {"request", 0, 0, true},
                                        {"answer", 0, kMostPieceBytes, true},
                                        {"goodbye", 0, 0, false}};
  const auto index = static_cast<size_t>(kind) - 1;
  return index < std::size(kRules) ? &kRules[index] : nullptr;
}

absl::Status Wrong(const KindRule& rule, const char* field, uint64_t value, const char* expected) {
  return absl::InvalidArgumentError(
      fmt::format("frame of kind '{}': {} is {}; expected {}", rule.name, field, value, expected));
}

absl::Status CheckSmallThing(const KindRule& rule, const FrameHeader& header) {
  if (header.block < static_cast<uint8_t>(SmallThing::kHeader) ||
      header.block > static_cast<uint8_t>(SmallThing::kSums)) {
    return Wrong(rule, "block", header.block, "1 to 4");
  }
  if (header.bytes > kMostSmallThingBytes) return Wrong(rule, "bytes", header.bytes, "up to 2^28");
  if (uint64_t{header.small_begin()} + header.payload_bytes > header.bytes) {
    return Wrong(rule, "the end", uint64_t{header.small_begin()} + header.payload_bytes,
                 "none beyond its bytes");
  }
  return absl::OkStatus();
}

absl::Status CheckPiece(const KindRule& rule, const FrameHeader& header) {
  if (header.bytes == 0 || header.bytes > kMostPieceBytes) {
    return Wrong(rule, "bytes", header.bytes, "1 to 1048576");
  }
  const bool empty = header.kind == FrameKind::kAnswer && header.payload_bytes == 0;
  if (!empty && rule.most_payload > 0 && header.payload_bytes != header.bytes) {
    return Wrong(rule, "bytes", header.bytes, "those of the payload");
  }
  if (header.offset > kMaxParityDataBytes - header.bytes) {
    return Wrong(rule, "offset", header.offset, "an end of at most 2^48");
  }
  return absl::OkStatus();
}

}  // namespace

const char* NameOf(FrameKind kind) {
  const KindRule* rule = RuleOf(kind);
  return rule == nullptr ? "unknown" : rule->name;
}

absl::Status CheckFrame(const FrameHeader& header) {
  const KindRule* rule = RuleOf(header.kind);
  if (rule == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("frame: kind {} is not known; expected 1 to 7", static_cast<int>(header.kind)));
  }
  if (header.payload_bytes < rule->least_payload || header.payload_bytes > rule->most_payload) {
    return absl::InvalidArgumentError(
        fmt::format("frame of kind '{}': a payload of {} bytes; expected {} to {}", rule->name,
                    header.payload_bytes, rule->least_payload, rule->most_payload));
  }
  if (!rule->about_bytes) {
    if (header.member != 0) return Wrong(*rule, "member", header.member, "0");
    if (header.block != 0) return Wrong(*rule, "block", header.block, "0");
    if (header.offset != 0) return Wrong(*rule, "offset", header.offset, "0");
    if (header.bytes != 0) return Wrong(*rule, "bytes", header.bytes, "0");
    if (header.kind == FrameKind::kGoodbye && header.round != 0) {
      return Wrong(*rule, "round", header.round, "0");
    }
    return absl::OkStatus();
  }
  if (header.member >= kMaxParityMembers) return Wrong(*rule, "member", header.member, "0 to 254");
  if (header.block >= kMaxParityMembers) return Wrong(*rule, "block", header.block, "0 to 254");
  return header.kind == FrameKind::kSmallThing ? CheckSmallThing(*rule, header)
                                               : CheckPiece(*rule, header);
}

void FrameTags::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

FrameTags::FrameTags(const FrameKey& key) : context_(EVP_CIPHER_CTX_new()) {
  TRIREME_CHECK(context_ != nullptr);
  TRIREME_CHECK(EVP_EncryptInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr,
                                   reinterpret_cast<const unsigned char*>(key.data()),
                                   nullptr) == 1);
}

void FrameTags::Begin(uint64_t number) {
  unsigned char nonce[12] = {};
  for (int i = 0; i < 8; ++i) nonce[11 - i] = static_cast<unsigned char>(number >> (8 * i) & 255);
  TRIREME_CHECK(EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce) == 1);
}

void FrameTags::Add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  int ignored = 0;
  TRIREME_CHECK(EVP_EncryptUpdate(context_.get(), nullptr, &ignored,
                                  reinterpret_cast<const unsigned char*>(bytes.data()),
                                  static_cast<int>(bytes.size())) == 1);
}

std::array<std::byte, 16> FrameTags::Tag() {
  std::array<std::byte, 16> tag;
  unsigned char nothing[16];
  int none = 0;
  TRIREME_CHECK(EVP_EncryptFinal_ex(context_.get(), nothing, &none) == 1 && none == 0);
  TRIREME_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, tag.size(), tag.data()) ==
                1);
  return tag;
}

absl::StatusOr<FrameHeaderBytes> FrameSealer::Seal(
    const FrameHeader& header, std::span<const std::span<const std::byte>> payload) {
  RETURN_IF_ERROR(CheckFrame(header));
  uint64_t payload_bytes = 0;
  for (const auto part : payload) payload_bytes += part.size();
  if (payload_bytes != header.payload_bytes) {
    return absl::InvalidArgumentError(fmt::format("frame: {} bytes of payload where {} are said",
                                                  payload_bytes, header.payload_bytes));
  }
  FrameHeaderBytes bytes{};
  std::copy(kFrameMagic.begin(), kFrameMagic.end(), bytes.begin());
  StoreLittle(bytes, kFrameVersionAt, kFrameVersion);
  StoreLittle(bytes, kFrameKindAt, static_cast<uint8_t>(header.kind));
  StoreLittle(bytes, kFrameMemberAt, header.member);
  StoreLittle(bytes, kFrameBlockAt, header.block);
  StoreLittle(bytes, kFrameNumberAt, number_);
  StoreLittle(bytes, kFrameAttemptAt, attempt_);
  StoreLittle(bytes, kFrameRoundAt, header.round);
  StoreLittle(bytes, kFrameOffsetAt, header.offset);
  StoreLittle(bytes, kFrameBytesAt, header.bytes);
  StoreLittle(bytes, kFramePayloadAt, header.payload_bytes);
  tags_.Begin(number_);
  tags_.Add(std::span(bytes).first<kFrameTagAt>());
  for (const auto part : payload) tags_.Add(part);
  const auto tag = tags_.Tag();
  std::copy(tag.begin(), tag.end(), bytes.begin() + kFrameTagAt);
  ++number_;
  return bytes;
}

absl::StatusOr<FrameHeader> FrameOpener::Header(
    std::span<const std::byte, kFrameHeaderBytes> bytes) {
  if (said_goodbye_) return absl::InvalidArgumentError("frame: one came after a goodbye");
  if (!std::equal(kFrameMagic.begin(), kFrameMagic.end(), bytes.begin())) {
    return absl::DataLossError("frame: no header begins here");
  }
  if (const auto version = LoadLittle<uint8_t>(bytes, kFrameVersionAt); version != kFrameVersion) {
    return absl::FailedPreconditionError(
        fmt::format("frame: version {}; this program knows version {}", version, kFrameVersion));
  }
  if (const auto attempt = LoadLittle<uint64_t>(bytes, kFrameAttemptAt); attempt != attempt_) {
    return absl::FailedPreconditionError(
        fmt::format("frame: of attempt {}; this connection is of attempt {}", attempt, attempt_));
  }
  if (const auto number = LoadLittle<uint64_t>(bytes, kFrameNumberAt); number != number_) {
    return absl::DataLossError(
        fmt::format("frame: number {} came where {} is due", number, number_));
  }
  FrameHeader header;
  header.kind = static_cast<FrameKind>(LoadLittle<uint8_t>(bytes, kFrameKindAt));
  header.member = LoadLittle<uint8_t>(bytes, kFrameMemberAt);
  header.block = LoadLittle<uint8_t>(bytes, kFrameBlockAt);
  header.round = LoadLittle<uint64_t>(bytes, kFrameRoundAt);
  header.offset = LoadLittle<uint64_t>(bytes, kFrameOffsetAt);
  header.bytes = LoadLittle<uint32_t>(bytes, kFrameBytesAt);
  header.payload_bytes = LoadLittle<uint32_t>(bytes, kFramePayloadAt);
  RETURN_IF_ERROR(CheckFrame(header));
  kind_ = header.kind;
  std::copy_n(bytes.begin() + kFrameTagAt, tag_.size(), tag_.begin());
  tags_.Begin(number_);
  tags_.Add(bytes.first<kFrameTagAt>());
  return header;
}

absl::Status FrameOpener::Finish() {
  const auto tag = tags_.Tag();
  if (CRYPTO_memcmp(tag.data(), tag_.data(), tag.size()) != 0) {
    return absl::DataLossError(
        fmt::format("frame: the tag of number {} ('{}') is wrong: its bytes were changed, or the "
                    "key is another",
                    number_, NameOf(kind_)));
  }
  ++number_;
  said_goodbye_ = kind_ == FrameKind::kGoodbye;
  return absl::OkStatus();
}

}  // namespace trireme::checkpoint
