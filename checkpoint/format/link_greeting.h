// How a connection between agents begins (docs/formats/frames.md): a greeting of either side, and a
// proof of either that it knows the attempt's key, for this connection alone.
// Pure: no sockets, no randomness.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/frame.h"

namespace trireme::checkpoint {

inline constexpr uint32_t kLinkVersion = 1;
inline constexpr size_t kLinkGreetingBytes = 64;
inline constexpr size_t kLinkProofBytes = 32;
// Of the attempt; a secret of its agents and the coordinator.
using AttemptKey = std::array<std::byte, 32>;
using LinkNonce = std::array<std::byte, 16>;
using LinkGreetingBytes = std::array<std::byte, kLinkGreetingBytes>;
using LinkProof = std::array<std::byte, kLinkProofBytes>;

enum class LinkSide : uint32_t { kDials = 1, kAccepts = 2 };

struct LinkGreeting {
  LinkSide side = LinkSide::kDials;
  uint64_t job = 0, attempt = 0;
  uint32_t group = 0;
  uint16_t from = 0, to = 0;  // members
  LinkNonce nonce{};

  // What the side that accepts answers to this.
  LinkGreeting Answer(const LinkNonce& own) const;
  friend bool operator==(const LinkGreeting&, const LinkGreeting&) = default;
};
LinkGreetingBytes FormatGreeting(const LinkGreeting& greeting);
// DataLoss: no greeting. FailedPrecondition: of another version. InvalidArgument: of the wrong
// side, or of members that cannot be.
absl::StatusOr<LinkGreeting> ParseGreeting(std::span<const std::byte, kLinkGreetingBytes> bytes,
                                           LinkSide side);

// What follows from the key and both greetings.
struct LinkSecrets {
  // What each side has to prove itself by, and the key of the frames that it sends; by side.
  LinkProof proof_of_dialler{}, proof_of_accepter{};
  FrameKey key_of_dialler{}, key_of_accepter{};
};
LinkSecrets SecretsOf(const AttemptKey& key, const LinkGreetingBytes& dialler,
                      const LinkGreetingBytes& accepter);
// In a time that does not depend on where they differ.
bool SameProof(const LinkProof& one, const LinkProof& other);

}  // namespace trireme::checkpoint
