#include "checkpoint/format/link_greeting.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "checkpoint/format/little_endian.h"
#include "checkpoint/format/parity.h"
#include "runtime/base/check.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kLinkMagic = "TRIRLINK";
constexpr size_t kLinkVersionAt = 8, kLinkSideAt = 12, kLinkJobAt = 16, kLinkAttemptAt = 24,
                 kLinkGroupAt = 32;
constexpr size_t kLinkFromAt = 36, kLinkToAt = 38, kLinkNonceAt = 40, kLinkZerosAt = 56;

void AppendBytes(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

LinkGreeting LinkGreeting::Answer(const LinkNonce& own) const {
  LinkGreeting answer = *this;
  answer.side = LinkSide::kAccepts;
  std::swap(answer.from, answer.to);
  answer.nonce = own;
  return answer;
}

LinkGreetingBytes FormatGreeting(const LinkGreeting& greeting) {
  LinkGreetingBytes bytes{};
  const auto magic = std::as_bytes(std::span(kLinkMagic));
  std::copy(magic.begin(), magic.end(), bytes.begin());
  StoreLittle(bytes, kLinkVersionAt, kLinkVersion);
  StoreLittle(bytes, kLinkSideAt, static_cast<uint32_t>(greeting.side));
  StoreLittle(bytes, kLinkJobAt, greeting.job);
  StoreLittle(bytes, kLinkAttemptAt, greeting.attempt);
  StoreLittle(bytes, kLinkGroupAt, greeting.group);
  StoreLittle(bytes, kLinkFromAt, greeting.from);
  StoreLittle(bytes, kLinkToAt, greeting.to);
  std::copy(greeting.nonce.begin(), greeting.nonce.end(), bytes.begin() + kLinkNonceAt);
  return bytes;
}

absl::StatusOr<LinkGreeting> ParseGreeting(std::span<const std::byte, kLinkGreetingBytes> bytes,
                                           LinkSide side) {
  const auto magic = std::as_bytes(std::span(kLinkMagic));
  if (!std::equal(magic.begin(), magic.end(), bytes.begin())) {
    return absl::DataLossError("greeting: what came is no greeting of an agent");
  }
  if (const auto version = LoadLittle<uint32_t>(bytes, kLinkVersionAt); version != kLinkVersion) {
    return absl::FailedPreconditionError(
        fmt::format("greeting: version {}; this program knows version {}", version, kLinkVersion));
  }
  if (const auto said = LoadLittle<uint32_t>(bytes, kLinkSideAt);
      said != static_cast<uint32_t>(side)) {
    return absl::InvalidArgumentError(
        fmt::format("greeting: of side {}; expected {}", said, static_cast<uint32_t>(side)));
  }
  LinkGreeting greeting;
  greeting.side = side;
  greeting.job = LoadLittle<uint64_t>(bytes, kLinkJobAt);
  greeting.attempt = LoadLittle<uint64_t>(bytes, kLinkAttemptAt);
  greeting.group = LoadLittle<uint32_t>(bytes, kLinkGroupAt);
  greeting.from = LoadLittle<uint16_t>(bytes, kLinkFromAt);
  greeting.to = LoadLittle<uint16_t>(bytes, kLinkToAt);
  std::copy_n(bytes.begin() + kLinkNonceAt, greeting.nonce.size(), greeting.nonce.begin());
  if (greeting.from >= kMaxParityMembers || greeting.to >= kMaxParityMembers ||
      greeting.from == greeting.to) {
    return absl::InvalidArgumentError(
        fmt::format("greeting: from member {} to member {}; expected two different ones below {}",
                    greeting.from, greeting.to, kMaxParityMembers));
  }
  const auto zeros = bytes.subspan<kLinkZerosAt>();
  if (std::any_of(zeros.begin(), zeros.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return absl::InvalidArgumentError("greeting: its last 8 bytes are not zero");
  }
  return greeting;
}

LinkSecrets SecretsOf(const AttemptKey& key, const LinkGreetingBytes& dialler,
                      const LinkGreetingBytes& accepter) {
  const auto sum = [&](std::string_view word) {
    std::vector<std::byte> text;
    AppendBytes(text, std::as_bytes(std::span(word)));
    AppendBytes(text, dialler);
    AppendBytes(text, accepter);
    std::array<std::byte, 32> code;
    unsigned length = 0;
    TRIREME_CHECK(HMAC(EVP_sha256(), key.data(), key.size(),
                       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                       reinterpret_cast<unsigned char*>(code.data()), &length) != nullptr &&
                  length == code.size());
    return code;
  };
  const auto key_of = [&](std::string_view word) {
    FrameKey made;
    const auto code = sum(word);
    std::copy_n(code.begin(), made.size(), made.begin());
    return made;
  };
  return {.proof_of_dialler = sum("DIALLED."),
          .proof_of_accepter = sum("ACCEPTS."),
          .key_of_dialler = key_of("KEYDIALS"),
          .key_of_accepter = key_of("KEYACCPT")};
}

bool SameProof(const LinkProof& one, const LinkProof& other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace trireme::checkpoint
