// What streams hold and cost, and what is refused.
#include <catch2/catch.hpp>

#include "compress/codec.h"
#include "tests/compress/reseal.h"
#include "tests/compress/sample_values.h"
#include "tests/sanitizer.h"

namespace trireme::compress {
namespace {

using Stream = std::vector<std::byte>;

template <typename E>
Stream Compressed(const BitsVector<E>& values, Bound bound) {
  auto stream = Compress(ValuesIn<E>(values), bound);
  REQUIRE(stream.ok());
  return *std::move(stream);
}

bool Says(const absl::Status& status, std::string_view text) {
  INFO(status.message());
  return !status.ok() &&
         std::string_view(status.message().data(), status.message().size()).find(text) !=
             std::string_view::npos;
}

TEST_CASE("constant, zero and special-filled data cost almost nothing") {
  constexpr size_t kCount = 1'000'000;
  for (const F32::Bits bits :
       {0U, F32::kSign, F32::kInfinity, 0x7fc01234U, 3U, std::bit_cast<uint32_t>(1234.5F)}) {
    const BitsVector<F32> values(kCount, bits);
    for (const Bound bound : {Bound{BoundMode::kAbsolute, 1e-3}, Bound{BoundMode::kRange, 1e-3},
                              Bound{BoundMode::kRms, 0.1}, Bound{BoundMode::kAbsolute, 0}}) {
      const Stream stream = Compressed<F32>(values, bound);
      INFO("bits " << bits << ", mode " << static_cast<int>(bound.mode));
      CHECK(stream.size() * 180 < kCount * 4);
      BitsVector<F32> back(kCount, 1);
      REQUIRE(Decompress(stream, ValuesIn<F32>(&back)).ok());
      CHECK(Violations<F32>(values, back, bound.value * 1234.5) == 0);
    }
  }
  CHECK(Compressed<F32>(BitsVector<F32>(kCount, 0), {BoundMode::kAbsolute, 1e-3}).size() < 400);
  CHECK(Compressed<F64>(BitsVector<F64>(kCount, 77), {BoundMode::kRange, 1e-3}).size() < 80'000);
}

TEST_CASE("no stream is longer than its values and the stated bytes") {
  for (const size_t count : {0, 1, 2, 255, 256, 257, 65536, 65537, 200'000}) {
    for (const double bound : {0.0, 1e-12, 1e-3}) {
      const auto values = MakeValues<F32>(Kind::kRandomBits, count, 1, count);
      const Stream stream = Compressed<F32>(values, {BoundMode::kAbsolute, bound});
      CHECK(stream.size() <= 64 + 16 * ((count + 65535) / 65536) + 4 * count);
    }
  }
}

TEST_CASE("a bound of 0 keeps all bits of every type") {
  const auto check = [&]<typename E>(E) {
    for (const Kind kind : kKinds) {
      const auto values = MakeValues<E>(kind, 70'001, 0.1, 1);
      BitsVector<E> back(values.size(), 1);
      REQUIRE(Decompress(Compressed<E>(values, {BoundMode::kRms, 0}), ValuesIn<E>(&back)).ok());
      REQUIRE(back == values);
    }
  };
  check(F32{});
  check(F64{});
  check(BF16{});
  check(F16{});
}

TEST_CASE("a NaN among values costs five bytes and two per block, -0 one byte") {
  auto values = MakeValues<F32>(Kind::kGauss, 65536, 1e-3, 1);
  const size_t without = Compressed<F32>(values, {BoundMode::kAbsolute, 1e-3}).size();
  values[1000] = 0x7fc00000;
  CHECK(Compressed<F32>(values, {BoundMode::kAbsolute, 1e-3}).size() <= without + 7);
  BitsVector<F32> zeros(65536, 0);
  std::mt19937 random(1);
  for (F32::Bits& bits : zeros) bits = random() % 2 == 0 ? 0 : F32::kSign;
  CHECK(Compressed<F32>(zeros, {BoundMode::kAbsolute, 1e-3}).size() < 65536 / 7);
}

TEST_CASE("one infinity does not spoil a relative bound") {
  auto values = MakeValues<F32>(Kind::kGauss, 65536, 1e-3, 1);
  const auto before = Resolve(ValuesIn<F32>(values), {BoundMode::kRange, 1e-3});
  values[5] = F32::kInfinity;
  const auto after = Resolve(ValuesIn<F32>(values), {BoundMode::kRange, 1e-3});
  REQUIRE((before.ok() && after.ok()));
  CHECK(after->absolute == Approx(before->absolute).epsilon(0.3));
}

TEST_CASE("any range of values is the same as in the whole") {
  for (const Kind kind : {Kind::kSmooth, Kind::kGauss, Kind::kSpecials}) {
    const auto values = MakeValues<F32>(kind, 200'123, 1e-3, 1);
    const Stream stream = Compressed<F32>(values, {BoundMode::kAbsolute, 1e-3});
    BitsVector<F32> whole(values.size(), 1);
    REQUIRE(Decompress(stream, ValuesIn<F32>(&whole)).ok());
    std::mt19937 random(2);
    for (int round = 0; round < 200; ++round) {
      const size_t first = random() % values.size();
      const size_t count =
          std::min<size_t>(values.size() - first, random() % (round < 100 ? 600 : 150'000));
      BitsVector<F32> part(count, 1);
      REQUIRE(
          DecompressRange(stream, first, ValuesIn<F32>(&part), {.threads = 1 + round % 3}).ok());
      REQUIRE(
          std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
    }
  }
}

TEST_CASE("an output of just the right size suffices, one byte less is refused and not passed") {
  for (const Kind kind : kKinds) {
    const auto values = MakeValues<F32>(kind, 70'001, 1e-3, 1);
    const auto quantiser = ResolveAbsolute(ElementType::kF32, 1e-3);
    const Stream expected = Compressed<F32>(values, {BoundMode::kAbsolute, 1e-3});
    for (const int threads : {1, 2}) {
      Stream out(expected.size() + 64, std::byte{0x5a});
      auto bytes = Compress(ValuesIn<F32>(values), *quantiser,
                            std::span(out).first(expected.size()), {threads});
      REQUIRE(bytes.ok());
      REQUIRE(std::equal(expected.begin(), expected.end(), out.begin()));
      out.assign(out.size(), std::byte{0x5a});
      bytes = Compress(ValuesIn<F32>(values), *quantiser, std::span(out).first(expected.size() - 1),
                       {threads});
      CHECK(Says(bytes.status(), "does not fit"));
      CHECK(std::all_of(out.begin() + static_cast<std::ptrdiff_t>(expected.size()) - 1, out.end(),
                        [](std::byte byte) { return byte == std::byte{0x5a}; }));
    }
  }
}

TEST_CASE("bad arguments are named") {
  CHECK(Says(ParseBound("rms").status(), "expected abs:E, range:E or rms:E"));
  CHECK(Says(ParseBound("mean:1").status(), "'mean:1'"));
  CHECK(Says(ParseBound("abs:-1").status(), "'abs:-1'"));
  CHECK(Says(ParseBound("abs:1x").status(), "'abs:1x'"));
  CHECK(Says(ParseBound("abs:nan").status(), "'abs:nan'"));
  CHECK(ParseBound("rms:0.1")->value == 0.1);
  CHECK(Says(ResolveAbsolute(ElementType::kF32, -1).status(), "bound -1"));
  CHECK(Says(ParseElementType("f8").status(), "'f8'"));
  const auto values = MakeValues<F32>(Kind::kGauss, 1000, 1, 1);
  const Stream stream = Compressed<F32>(values, {BoundMode::kAbsolute, 1});
  BitsVector<F32> back(999);
  CHECK(Says(Decompress(stream, ValuesIn<F32>(&back)), "holds 1000 values"));
  CHECK(Says(DecompressRange(stream, 2, ValuesIn<F32>(&back)), "of 1000"));
  BitsVector<F64> wide(1000);
  CHECK(Says(Decompress(stream, ValuesIn<F64>(&wide)), "holds f32, not f64"));
}

// What the first writer of version 1 made of StoredValues at an absolute bound of 2^-7: a block of
// few values, one with exceptions, and a short one of equal values.
constexpr std::string_view kStoredStream =
    "54524952434f444501000000100000005802000000000000000000000000803f000000000000803f00000000"
    "00f88f3f090100000000000001000000fb120f41c10000006cb206f4010000000000000040c43e0604002850"
    "78a0f0d63365690aa33231b1a10b336044e1c4592d38a2c88a14d70a0c306e4c7c001b104374ca835e029bc8"
    "87695a3b97f9619fa7680bb02aa268009fd7a360371d08808c7ed059dca4e45453629745f3dc8e8726476694"
    "3640f4ac8644b3a03a3ad098d546922b64c219ecbece1ed0aaab460cccea831f3007000c384cda6016430236"
    "ac6c0e001c356566718d9d9fa6aaaebbbde404012c2e2f303412c07f000080ff07000000caf249712d000060"
    "40";

BitsVector<F32> StoredValues() {
  BitsVector<F32> values(600);
  uint32_t state = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    state = state * 1664525 + 1013904223;
    const float value = static_cast<float>(static_cast<int>(state >> 20) - 2048) * 0x1p-14F;
    values[i] = std::bit_cast<uint32_t>(i >= 512 ? 3.5F : i < 256 && i % 40 != 0 ? 0 : value);
  }
  const F32::Bits rare[] = {0x7fc01234, F32::kSign, 0xff800000, 7, std::bit_cast<uint32_t>(1e30F)};
  std::copy(std::begin(rare), std::end(rare), values.begin() + 300);
  return values;
}

TEST_CASE("a stored stream of version 1 still reads") {
  Stream stream(kStoredStream.size() / 2);
  for (size_t i = 0; i < stream.size(); ++i) {
    stream[i] = static_cast<std::byte>(
        std::stoul(std::string(kStoredStream.substr(2 * i, 2)), nullptr, 16));
  }
  const auto info = ReadInfo(stream);
  REQUIRE(info.ok());
  CHECK(info->quantiser.absolute == 0x1p-7);
  BitsVector<F32> back(600, 1);
  REQUIRE(Decompress(stream, ValuesIn<F32>(&back)).ok());
  CHECK(Violations<F32>(StoredValues(), back, 0x1p-7) == 0);
  CHECK(Inspect(stream)->exceptions == 4);
}

TEST_CASE("every field of a stream is checked") {
  const auto values = MakeValues<F32>(Kind::kGauss, 1000, 1e-3, 1);
  const Stream good = Compressed<F32>(values, {BoundMode::kAbsolute, 1e-3});
  REQUIRE(ReadInfo(good).ok());
  const auto fault = [&](size_t at, uint8_t byte, bool reseal) {
    Stream bad = good;
    bad[at] = static_cast<std::byte>(byte);
    if (reseal) Reseal(&bad);
    BitsVector<F32> back(1000);
    return Decompress(bad, ValuesIn<F32>(&back));
  };
  CHECK(Says(fault(0, 'X', true), "TRIRCODE"));
  CHECK(Says(fault(8, 2, true), "version 2"));
  CHECK(Says(fault(10, 4, true), "element type 4"));
  CHECK(Says(fault(11, 3, true), "mode 3"));
  CHECK(Says(fault(12, 15, true), "2^15"));
  CHECK(Says(fault(14, 1, true), "not zero"));
  CHECK(Says(fault(18, 1, true), "do not hold"));
  CHECK(Says(fault(31, 0xff, true), "bound asked for"));
  CHECK(Says(fault(39, 0xff, true), "absolute bound"));
  CHECK(Says(fault(47, 0x40, true), "step"));
  CHECK(Says(fault(47, 0, true), "step"));
  CHECK(Says(fault(40, 1, true), "not an f32"));
  CHECK(Says(fault(48, 1, true), "cut off?"));
  CHECK(Says(fault(56, 2, true), "do not hold"));
  CHECK(Says(fault(60, 0, false), "checksum of the header"));
  CHECK(Says(fault(64, 1, true), "pieces end at"));
  CHECK(Says(fault(72, 3, false), "wrong checksum"));
  CHECK(Says(fault(72, 3, true), "unknown kind"));
  CHECK(Says(fault(73, 3, true), "unknown predictor"));
  CHECK(Says(fault(74, 4, true), "unknown flags"));
  CHECK(Says(fault(75, 1, true), "must be zero"));
  CHECK(Says(fault(72, 0, true), "verbatim"));
  CHECK(Says(fault(80, 33, true), "impossible width"));
  CHECK(Says(fault(80, 32, true), "ends inside"));
  CHECK(Says(fault(83, 0, true), "after its last block"));
  for (size_t size = 0; size < good.size(); ++size) {
    BitsVector<F32> back(1000);
    REQUIRE(Says(Decompress(std::span(good).first(size), ValuesIn<F32>(&back)), "codec stream"));
  }
}

TEST_CASE("a million mutated streams decode or are refused, and never read beyond their end") {
  std::vector<Stream> seeds;
  for (const Kind kind : kKinds) {
    for (const size_t count : {40, 300, 700}) {
      seeds.push_back(
          Compressed<F32>(MakeValues<F32>(kind, count, 1e-2, count), {BoundMode::kAbsolute, 1e-2}));
    }
  }
  std::mt19937_64 random(1);
  BitsVector<F32> back(1000);
  int accepted = 0;
  for (int round = 0; round < tests::Tries(1'000'000); ++round) {
    const Stream& seed = seeds[random() % seeds.size()];
    // Of its own size on the heap, so that a sanitizer sees any read beyond it.
    Stream bad(seed.begin(),
               seed.end() - static_cast<std::ptrdiff_t>(round % 8 == 0 ? random() % 80 : 0));
    for (size_t k = 0; k < 1 + random() % 3; ++k) {
      // Mostly behind the header, where the rich part is.
      const size_t at =
          random() % 4 == 0 ? random() % bad.size() : std::min(bad.size() - 1, 72 + random() % 40);
      bad[at] = static_cast<std::byte>(random() % 3 == 0 ? random() : 1 << random() % 8);
    }
    if (bad.size() >= 72 && random() % 8 != 0) {
      const uint64_t size = bad.size();
      std::memcpy(bad.data() + 48, &size, 8);
      uint32_t piece = static_cast<uint32_t>(size - 72);
      std::memcpy(bad.data() + 64, &piece, 4);
      uint32_t one = 1;
      std::memcpy(bad.data() + 56, &one, 4);
      Reseal(&bad);
    }
    const auto info = ReadInfo(bad);
    if (!info.ok() || info->count > back.size() || info->type != ElementType::kF32) continue;
    const MutableValues out{ElementType::kF32, back.data(), static_cast<size_t>(info->count)};
    if (Decompress(bad, out).ok()) ++accepted;
    (void)Inspect(bad);
  }
  CHECK(accepted > tests::Tries(10'000));   // The mutations reach the inside
  CHECK(accepted < tests::Tries(900'000));  // and are noticed.
}

}  // namespace
}  // namespace trireme::compress
