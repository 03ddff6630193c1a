// Frames and greetings: what is sealed is opened, what was changed anywhere is refused, and no
// length is believed beyond its bound. The bounds are written out here once more.
#include "checkpoint/format/frame.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "checkpoint/format/link_greeting.h"
#include "tests/checkpoint/sample_state.h"

namespace trireme::checkpoint {
namespace {

using Bytes = std::vector<std::byte>;
constexpr uint64_t kAttempt = 7;

FrameKey KeyOf(int seed) {
  FrameKey key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(seed + 3 * i);
  return key;
}

Bytes PayloadOf(size_t number, size_t size) {
  Bytes bytes(size);
  for (size_t x = 0; x < size; ++x) {
    bytes[x] = static_cast<std::byte>((7 * x + x / 251 + 31 * number) % 256);
  }
  return bytes;
}

// One of each kind, with a goodbye at the end.
std::vector<FrameHeader> SomeFrames() {
  return {{FrameKind::kMessage, 0, 0, 3, 0, 0, 40},
          {FrameKind::kSmallThing, 9, 4, 3, FrameHeader::SmallOffset(5, 100), 160, 60},
          {FrameKind::kPiece, 2, 1, 3, 4096, 33, 33},
          {FrameKind::kSame, 2, 1, 3, 5000, 1000, 0},
          {FrameKind::kRequest, 1, 6, 3, 70, 20, 0},
          {FrameKind::kAnswer, 1, 6, 3, 70, 20, 20},
          {FrameKind::kAnswer, 1, 6, 3, 70, 20, 0},
          {FrameKind::kGoodbye, 0, 0, 0, 0, 0, 0}};
}

void AppendSealed(FrameSealer& sealer, const FrameHeader& header, size_t number, Bytes& stream) {
  const Bytes payload = PayloadOf(number, header.payload_bytes);
  // In parts of no even length.
  const auto all = std::span(payload);
  const std::array parts{all.first(all.size() / 3), all.subspan(all.size() / 3)};
  const auto sealed = sealer.Seal(header, parts);
  REQUIRE(sealed.ok());
  stream.insert(stream.end(), sealed->begin(), sealed->end());
  stream.insert(stream.end(), payload.begin(), payload.end());
}

Bytes Sealed(const std::vector<FrameHeader>& frames, int key = 1) {
  FrameSealer sealer(KeyOf(key), kAttempt);
  Bytes stream;
  for (size_t i = 0; i < frames.size(); ++i) AppendSealed(sealer, frames[i], i, stream);
  return stream;
}

struct Opened {
  std::vector<FrameHeader> frames;
  std::vector<Bytes> payloads;
  absl::Status status;
};

// As a connection reads: nothing of a frame that is not there whole. A part is at most `part`.
Opened Open(std::span<const std::byte> stream, FrameOpener opener, size_t part = 1 << 20) {
  Opened opened;
  const auto cut = absl::UnavailableError("cut");
  while (!stream.empty()) {
    opened.status = cut;
    if (stream.size() < kFrameHeaderBytes) return opened;
    const auto header = opener.Header(stream.first<kFrameHeaderBytes>());
    opened.status = header.status();
    if (!header.ok()) return opened;
    stream = stream.subspan(kFrameHeaderBytes);
    opened.status = cut;
    if (stream.size() < header->payload_bytes) return opened;
    const auto payload = stream.first(header->payload_bytes);
    for (size_t at = 0; at < payload.size(); at += part) {
      opener.Payload(payload.subspan(at, std::min(part, payload.size() - at)));
    }
    opened.status = opener.Finish();
    if (!opened.status.ok()) return opened;
    opened.frames.push_back(*header);
    opened.payloads.emplace_back(payload.begin(), payload.end());
    stream = stream.subspan(payload.size());
  }
  opened.status = opener.said_goodbye() ? absl::OkStatus() : cut;
  return opened;
}
Opened Open(std::span<const std::byte> stream, int key = 1) {
  return Open(stream, FrameOpener(KeyOf(key), kAttempt));
}

// The first byte of each frame, and the end.
std::vector<size_t> BordersOf(const std::vector<FrameHeader>& frames) {
  std::vector<size_t> borders{0};
  for (const FrameHeader& each : frames) {
    borders.push_back(borders.back() + kFrameHeaderBytes + each.payload_bytes);
  }
  return borders;
}
size_t FrameAt(const std::vector<size_t>& borders, size_t byte) {
  const auto behind = std::upper_bound(borders.begin(), borders.end(), byte);
  return static_cast<size_t>(behind - borders.begin()) - 1;
}

// The table of the document.
bool MayBe(const FrameHeader& h) {
  constexpr uint32_t kMiB = 1 << 20;
  const bool zeros = h.member == 0 && h.block == 0 && h.offset == 0 && h.bytes == 0;
  const bool named = h.member < 255 && h.block < 255;
  const bool piece =
      named && h.bytes >= 1 && h.bytes <= kMiB && h.offset <= (uint64_t{1} << 48) - h.bytes;
  switch (static_cast<int>(h.kind)) {
    case 1:
      return zeros && h.payload_bytes >= 1 && h.payload_bytes <= 65536;
    case 2:
      return named && h.block >= 1 && h.block <= 4 && h.payload_bytes >= 1 &&
             h.payload_bytes <= kMiB && h.bytes <= 1U << 28 &&
             (h.offset & 0xffffffffU) + h.payload_bytes <= h.bytes;
    case 3:
      return piece && h.payload_bytes == h.bytes;
    case 4:
    case 5:
      return piece && h.payload_bytes == 0;
    case 6:
      return piece && (h.payload_bytes == 0 || h.payload_bytes == h.bytes);
    case 7:
      return zeros && h.round == 0 && h.payload_bytes == 0;
    default:
      return false;
  }
}

}  // namespace

TEST_CASE("frames: what was sealed is opened, in parts of any length") {
  const auto frames = SomeFrames();
  const Bytes stream = Sealed(frames);
  for (const size_t part : {size_t{1}, size_t{7}, size_t{16}, size_t{1000}}) {
    const Opened opened = Open(stream, FrameOpener(KeyOf(1), kAttempt), part);
    REQUIRE(opened.status.ok());
    CHECK(opened.frames == frames);
    for (size_t i = 0; i < frames.size(); ++i) {
      CHECK(opened.payloads[i] == PayloadOf(i, frames[i].payload_bytes));
    }
  }
}

TEST_CASE("frames: the largest of each kind pass, and one byte more is refused") {
  constexpr uint64_t kEnd = uint64_t{1} << 48;
  const std::vector<FrameHeader> largest{
      {FrameKind::kMessage, 0, 0, ~uint64_t{0}, 0, 0, 65536},
      {FrameKind::kSmallThing, 254, 4, 1, FrameHeader::SmallOffset(~0U, (1U << 28) - (1U << 20)),
       1U << 28, 1U << 20},
      {FrameKind::kPiece, 254, 254, 1, kEnd - (1U << 20), 1U << 20, 1U << 20},
      {FrameKind::kSame, 254, 254, 1, kEnd - (1U << 20), 1U << 20, 0},
      {FrameKind::kRequest, 254, 254, 1, kEnd - (1U << 20), 1U << 20, 0},
      {FrameKind::kAnswer, 254, 254, 1, kEnd - (1U << 20), 1U << 20, 1U << 20},
      {FrameKind::kGoodbye, 0, 0, 0, 0, 0, 0}};
  const Opened opened = Open(Sealed(largest));
  CHECK(opened.status.ok());
  CHECK(opened.frames == largest);
  for (const FrameHeader& each : largest) {
    INFO(NameOf(each.kind));
    CHECK(CheckFrame(each).ok());
    const std::array<FrameHeader, 6> larger{
        FrameHeader{each.kind, 255, each.block, each.round, each.offset, each.bytes,
                    each.payload_bytes},
        {each.kind, each.member, 255, each.round, each.offset, each.bytes, each.payload_bytes},
        {each.kind, each.member, each.block, each.round, each.offset + 1, each.bytes,
         each.payload_bytes},
        {each.kind, each.member, each.block, each.round, each.offset, each.bytes + 1,
         each.payload_bytes},
        {each.kind, each.member, each.block, each.round, each.offset, each.bytes,
         each.payload_bytes + 1},
        {static_cast<FrameKind>(8), each.member, each.block, each.round, each.offset, each.bytes,
         each.payload_bytes}};
    for (size_t i = 0; i < larger.size(); ++i) {
      INFO("field " << i);
      CHECK(CheckFrame(larger[i]).code() == absl::StatusCode::kInvalidArgument);
      FrameSealer sealer(KeyOf(1), kAttempt);
      const Bytes payload(larger[i].payload_bytes);
      CHECK_FALSE(sealer.Seal(larger[i], std::array{std::span(payload)}).ok());
    }
  }
}

TEST_CASE("frames: a payload of another length than the header says is not sealed") {
  FrameSealer sealer(KeyOf(1), kAttempt);
  const Bytes payload(41);
  const FrameHeader header = SomeFrames()[0];
  CHECK(sealer.Seal(header, {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(sealer.Seal(header, std::array{std::span(payload)}).ok());
  // No number is used up.
  Bytes stream;
  AppendSealed(sealer, header, 0, stream);
  AppendSealed(sealer, SomeFrames().back(), 1, stream);
  CHECK(Open(stream).status.ok());
}

TEST_CASE("frames: every flipped bit of a stream is refused in its own frame") {
  const auto frames = SomeFrames();
  const auto borders = BordersOf(frames);
  Bytes stream = Sealed(frames);
  for (size_t bit = 0; bit < 8 * stream.size(); ++bit) {
    const std::byte flip{static_cast<unsigned char>(1U << bit % 8)};
    stream[bit / 8] ^= flip;
    const Opened opened = Open(stream);
    stream[bit / 8] ^= flip;
    if (opened.status.ok() || opened.frames.size() != FrameAt(borders, bit / 8)) {
      FAIL("bit " << bit << ": " << opened.frames.size() << " frames, " << opened.status);
    }
  }
}

TEST_CASE("frames: a stream that is cut at any byte has lost its end") {
  const auto frames = SomeFrames();
  const auto borders = BordersOf(frames);
  const Bytes stream = Sealed(frames);
  for (size_t length = 0; length < stream.size(); ++length) {
    const Opened opened = Open(std::span(stream).first(length));
    INFO(length);
    CHECK_FALSE(opened.status.ok());
    CHECK(opened.frames.size() == FrameAt(borders, length));
  }
}

TEST_CASE("frames: one that is left out, repeated, moved or of another connection is refused") {
  const auto frames = SomeFrames();
  const auto borders = BordersOf(frames);
  const Bytes stream = Sealed(frames);
  const auto frame = [&](const Bytes& of, size_t i) {
    return std::span(of).subspan(borders[i], borders[i + 1] - borders[i]);
  };
  const auto joined = [&](std::initializer_list<size_t> order) {
    Bytes made;
    for (const size_t i : order) {
      made.insert(made.end(), frame(stream, i).begin(), frame(stream, i).end());
    }
    return made;
  };
  CHECK(Open(joined({1, 2})).status.code() == absl::StatusCode::kDataLoss);
  CHECK(Open(joined({0, 0})).status.message() == "frame: number 0 came where 1 is due");
  CHECK(Open(joined({0, 2, 1})).status.message() == "frame: number 2 came where 1 is due");
  CHECK(Open(stream, 2).status.code() == absl::StatusCode::kDataLoss);
  const Opened other = Open(stream, FrameOpener(KeyOf(1), kAttempt + 1));
  CHECK(other.status.message() == "frame: of attempt 7; this connection is of attempt 8");
  // The number in the header alone is not believed.
  Bytes renumbered(frame(stream, 3).begin(), frame(stream, 3).end());
  renumbered[8] = std::byte{0};
  CHECK(Open(renumbered).status.code() == absl::StatusCode::kDataLoss);
  Bytes more = stream;
  more.insert(more.end(), stream.begin(), stream.begin() + 104);
  CHECK(Open(more).status.message() == "frame: one came after a goodbye");
  Bytes later = stream;
  later[4] = std::byte{2};
  CHECK(Open(later).status.message() == "frame: version 2; this program knows version 1");
}

TEST_CASE("frames: of a million mutated headers none is believed beyond its bounds") {
  Random random(41);
  const auto frames = SomeFrames();
  std::vector<FrameHeaderBytes> sealed;
  for (const FrameHeader& each : frames) {
    FrameSealer sealer(KeyOf(1), kAttempt);
    const Bytes payload(each.payload_bytes);
    sealed.push_back(*sealer.Seal(each, std::array{std::span(payload)}));
  }
  FrameOpener opener(KeyOf(1), kAttempt);
  size_t taken = 0, wrong = 0;
  for (int i = 0; i < 1000000; ++i) {
    FrameHeaderBytes mutant = sealed[i % sealed.size()];
    const auto changes = Draw(random, 1, 4);
    for (int64_t change = 0; change < changes; ++change) {
      // Mostly in fields that have bounds, and there mostly at them.
      const int64_t at = Draw(random, 0, 3) == 0 ? Draw(random, 0, 63) : Draw(random, 32, 47);
      const std::array<int64_t, 6> borders{0, 1, 16, 17, 128, 255};
      mutant[at] =
          static_cast<std::byte>(Draw(random, 0, 1) ? borders[Draw(random, 0, 5)] : random());
    }
    mutant[5] = static_cast<std::byte>(Draw(random, 0, 3) == 0 ? Draw(random, 0, 9)
                                                               : static_cast<int>(mutant[5]));
    const auto header = opener.Header(mutant);
    if (!header.ok()) continue;
    ++taken;
    if (!MayBe(*header)) ++wrong;
    // What was to be read for it has not come.
    if (mutant != sealed[i % sealed.size()] && opener.Finish().ok()) ++wrong;
  }
  CHECK(wrong == 0);
  // The other way round, the fields at random, so that the rule is no stricter than the document.
  const auto drawn = [&](std::initializer_list<uint64_t> values) {
    return *(values.begin() + Draw(random, 0, static_cast<int64_t>(values.size()) - 1));
  };
  for (int i = 0; i < 200000; ++i) {
    FrameHeader header{static_cast<FrameKind>(Draw(random, 0, 8)),
                       static_cast<uint8_t>(drawn({0, 1, 254, 255})),
                       static_cast<uint8_t>(drawn({0, 1, 4, 5, 254, 255})),
                       drawn({0, 1}),
                       drawn({0, 1, (uint64_t{1} << 48) - 1, uint64_t{1} << 48, ~uint64_t{0}}),
                       static_cast<uint32_t>(drawn({0, 1, 65536, 65537, 1 << 20, 1 << 28})),
                       static_cast<uint32_t>(drawn({0, 1, 65536, 65537, 1 << 20, 1 << 28}))};
    if (Draw(random, 0, 1) == 0) header.payload_bytes = header.bytes;
    if (CheckFrame(header).ok() != MayBe(header)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(taken > 10000);
}

namespace {

AttemptKey SomeKey() {
  AttemptKey key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>((5 * i + 1) % 256);
  return key;
}

Bytes FromHex(const nlohmann::json& text) {
  const std::string bytes = absl::HexStringToBytes(text.get<std::string>());
  const auto all = std::as_bytes(std::span(bytes));
  return {all.begin(), all.end()};
}
template <size_t size>
bool Same(const std::array<std::byte, size>& made, const nlohmann::json& text) {
  const Bytes stored = FromHex(text);
  return std::equal(made.begin(), made.end(), stored.begin(), stored.end());
}

LinkGreeting SomeGreeting() {
  LinkGreeting greeting{LinkSide::kDials, 17, 0x1122334455667788, 3, 4, 0, {}};
  for (size_t i = 0; i < greeting.nonce.size(); ++i) {
    greeting.nonce[i] = static_cast<std::byte>(100 + i);
  }
  return greeting;
}
LinkNonce SomeNonce() {
  LinkNonce nonce;
  for (size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<std::byte>(200 + i);
  return nonce;
}

}  // namespace

TEST_CASE("frames: a greeting is read as it was written, and what differs is refused") {
  const LinkGreeting greeting = SomeGreeting();
  const LinkGreetingBytes bytes = FormatGreeting(greeting);
  const auto read = ParseGreeting(bytes, LinkSide::kDials);
  REQUIRE(read.ok());
  CHECK(*read == greeting);
  CHECK(ParseGreeting(bytes, LinkSide::kAccepts).status().code() ==
        absl::StatusCode::kInvalidArgument);
  const auto changed = [&](size_t at, int value) {
    LinkGreetingBytes other = bytes;
    other[at] = static_cast<std::byte>(value);
    return ParseGreeting(other, LinkSide::kDials).status();
  };
  CHECK(changed(0, 'X').code() == absl::StatusCode::kDataLoss);
  CHECK(changed(8, 2).message() == "greeting: version 2; this program knows version 1");
  CHECK(changed(12, 3).code() == absl::StatusCode::kInvalidArgument);
  CHECK(changed(36, 255).code() == absl::StatusCode::kInvalidArgument);
  CHECK(changed(38, 4).code() == absl::StatusCode::kInvalidArgument);  // with itself
  CHECK(changed(63, 1).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("frames: each bit of key, greetings and side changes proofs and keys") {
  const LinkGreetingBytes dialler = FormatGreeting(SomeGreeting());
  const LinkGreetingBytes accepter = FormatGreeting(SomeGreeting().Answer(SomeNonce()));
  const LinkSecrets right = SecretsOf(SomeKey(), dialler, accepter);
  CHECK_FALSE(SameProof(right.proof_of_dialler, right.proof_of_accepter));
  CHECK(right.key_of_dialler != right.key_of_accepter);
  CHECK(
      SameProof(right.proof_of_dialler, SecretsOf(SomeKey(), dialler, accepter).proof_of_dialler));
  const auto all_differ = [&](const LinkSecrets& other) {
    return !SameProof(right.proof_of_dialler, other.proof_of_dialler) &&
           !SameProof(right.proof_of_accepter, other.proof_of_accepter) &&
           right.key_of_dialler != other.key_of_dialler &&
           right.key_of_accepter != other.key_of_accepter;
  };
  size_t same = 0;
  const auto flip = [&](auto bytes, size_t bit) {
    bytes[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << bit % 8)};
    return bytes;
  };
  for (size_t bit = 0; bit < 8 * kLinkGreetingBytes; ++bit) {
    if (!all_differ(SecretsOf(SomeKey(), flip(dialler, bit), accepter))) ++same;
    if (!all_differ(SecretsOf(SomeKey(), dialler, flip(accepter, bit)))) ++same;
    if (bit < 256 && !all_differ(SecretsOf(flip(SomeKey(), bit), dialler, accepter))) ++same;
  }
  CHECK(same == 0);
}

TEST_CASE("frames: the stored connection of version 1 is read and written as it is") {
  CHECK(kFrameVersion == 1);
  CHECK(kLinkVersion == 1);
  const auto stored = nlohmann::json::parse(ReadAll(
      std::string(TRIREME_SOURCE_DIR) + "/tests/checkpoint/fixtures/frames_version_1.json"));
  const LinkGreetingBytes dialler = FormatGreeting(SomeGreeting());
  const LinkGreetingBytes accepter = FormatGreeting(SomeGreeting().Answer(SomeNonce()));
  CHECK(Same(dialler, stored["dialler"]));
  CHECK(Same(accepter, stored["accepter"]));
  CHECK(Same(SomeKey(), stored["key"]));
  const LinkSecrets secrets = SecretsOf(SomeKey(), dialler, accepter);
  CHECK(Same(secrets.proof_of_dialler, stored["proof_of_dialler"]));
  CHECK(Same(secrets.proof_of_accepter, stored["proof_of_accepter"]));
  for (const bool dials : {true, false}) {
    const nlohmann::json& side = stored[dials ? "of_dialler" : "of_accepter"];
    const FrameKey key = dials ? secrets.key_of_dialler : secrets.key_of_accepter;
    const Bytes stream = FromHex(side["bytes"]);
    const Opened opened = Open(stream, FrameOpener(key, SomeGreeting().attempt), 100);
    REQUIRE(opened.status.ok());
    REQUIRE(opened.frames.size() == side["fields"].size());
    FrameSealer sealer(key, SomeGreeting().attempt);
    Bytes again;
    for (size_t i = 0; i < opened.frames.size(); ++i) {
      const nlohmann::json& of = side["fields"][i];
      const FrameHeader header{static_cast<FrameKind>(of["kind"].get<int>()),
                               of.value("member", uint8_t{0}),
                               of.value("block", uint8_t{0}),
                               of.value("round", uint64_t{0}),
                               of.value("offset", uint64_t{0}),
                               of.value("about", uint32_t{0}),
                               of["payload"].get<uint32_t>()};
      CHECK(opened.frames[i] == header);
      CHECK(opened.payloads[i] == PayloadOf(i, header.payload_bytes));
      AppendSealed(sealer, header, i, again);
    }
    CHECK(again == stream);
  }
}

}  // namespace trireme::checkpoint
