// Frames by which agents send each other messages and pieces of state (docs/formats/frames.md): a
// header of 64 bytes, bounded, numbered and authenticated with its payload.
// Pure: no sockets. Takes no memory that grows with what a peer says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace trireme::checkpoint {

inline constexpr uint8_t kFrameVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 64;
inline constexpr uint32_t kMostMessageBytes = 64 << 10;
inline constexpr uint32_t kMostPieceBytes = 1 << 20;
inline constexpr uint32_t kMostSmallThingBytes = 1 << 28;

enum class FrameKind : uint8_t {
  kMessage = 1,
  kSmallThing = 2,
  kPiece = 3,
  kSame = 4,
  kRequest = 5,
  kAnswer = 6,
  kGoodbye = 7,
};
const char* NameOf(FrameKind kind);

// What a frame of kind kSmallThing brings a part of: FrameHeader::block.
enum class SmallThing : uint8_t { kHeader = 1, kRecord = 2, kManifest = 3, kSums = 4 };

// The fields that users of frames know. Attempt and number belong to the connection.
struct FrameHeader {
  FrameKind kind = FrameKind::kGoodbye;
  uint8_t member = 0, block = 0;
  uint64_t round = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t payload_bytes = 0;

  // Of a small thing, whose offset is both.
  static constexpr uint64_t SmallOffset(uint32_t rank, uint32_t begin) {
    return uint64_t{rank} << 32 | begin;
  }
  uint32_t small_rank() const { return static_cast<uint32_t>(offset >> 32); }
  uint32_t small_begin() const { return static_cast<uint32_t>(offset); }

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};
// InvalidArgument, with the field and its bound, for what the document does not let be.
absl::Status CheckFrame(const FrameHeader& header);

using FrameKey = std::array<std::byte, 16>;  // of one direction of one connection
using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

// AES-128-GMAC of one frame after the other. Not for several threads at once.
class FrameTags {
 public:
  explicit FrameTags(const FrameKey& key);
  void Begin(uint64_t number);
  void Add(std::span<const std::byte> bytes);
  std::array<std::byte, 16> Tag();

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

// The sending end of a direction.
class FrameSealer {
 public:
  FrameSealer(const FrameKey& key, uint64_t attempt) : tags_(key), attempt_(attempt) {}
  // The header to send, with the next number, before the payload, whose parts are together
  // header.payload_bytes. InvalidArgument, and no number is used: that of CheckFrame, or the parts
  // are not so long.
  absl::StatusOr<FrameHeaderBytes> Seal(const FrameHeader& header,
                                        std::span<const std::span<const std::byte>> payload);

 private:
  FrameTags tags_;
  uint64_t attempt_;
  uint64_t number_ = 0;
};

// The receiving end: Header, then Payload until it is there, then Finish, for one frame after the
// other. After an error nothing more may be asked of it: the connection has to end.
class FrameOpener {
 public:
  FrameOpener(const FrameKey& key, uint64_t attempt) : tags_(key), attempt_(attempt) {}

  // What the header says, within its bounds; whether it says the truth is known by Finish alone.
  // FailedPrecondition: of another version or attempt. DataLoss: no header, or not the next
  // number. InvalidArgument: a kind, field or length that cannot be, or a frame after a goodbye.
  absl::StatusOr<FrameHeader> Header(std::span<const std::byte, kFrameHeaderBytes> bytes);
  // The next bytes of the payload, in parts of any length.
  void Payload(std::span<const std::byte> part) { tags_.Add(part); }
  // DataLoss: header or payload are not what the peer has sealed.
  absl::Status Finish();
  // A goodbye was received whole, so that the end of the stream is no loss.
  bool said_goodbye() const { return said_goodbye_; }

 private:
  FrameTags tags_;
  uint64_t attempt_;
  uint64_t number_ = 0;
  FrameKind kind_ = FrameKind::kGoodbye;
  std::array<std::byte, 16> tag_{};
  bool said_goodbye_ = false;
};

}  // namespace trireme::checkpoint
