// The bound, bit patterns that must survive, and the same bytes from every instruction set and
// every number of threads.
#include <catch2/catch.hpp>

#include "compress/codec.h"
#include "compress/kernels.h"
#include "compress/piece.h"
#include "tests/compress/sample_values.h"
#include "tests/sanitizer.h"

namespace trireme::compress {
namespace {

using Stream = std::vector<std::byte>;

Stream CompressTo(Values values, const Quantiser& quantiser, const CodecOptions& options) {
  Stream stream(MaxCompressedBytes(values.type, values.count));
  const auto bytes = Compress(values, quantiser, stream, options);
  REQUIRE(bytes.ok());
  stream.resize(*bytes);
  return stream;
}

// Compresses and decompresses; returns violations, SIZE_MAX where anything failed.
template <typename E>
size_t ViolationsOf(const BitsVector<E>& values, const Quantiser& quantiser,
                    const CodecOptions& options) {
  const Stream stream = CompressTo(ValuesIn<E>(values), quantiser, options);
  BitsVector<E> back(values.size(), 1);
  if (!Decompress(stream, ValuesIn<E>(&back), options).ok()) return SIZE_MAX;
  return Violations<E>(values, back, quantiser.absolute);
}

template <typename E>
void CheckGuarantee(size_t values_in_all, size_t at_once) {
  uint64_t round = 0;
  for (size_t done = 0; done < values_in_all; ++round) {
    const Kind kind = kKinds[round % std::size(kKinds)];
    const double bound = BoundOf(round);
    const size_t count = at_once - round % 300;
    const auto values = MakeValues<E>(kind, count, bound, round);
    const auto quantiser = ResolveAbsolute(E::kType, bound);
    REQUIRE(quantiser.ok());
    REQUIRE(quantiser->absolute <= bound);
    INFO("kind " << static_cast<int>(kind) << ", bound " << bound << ", round " << round);
    REQUIRE(ViolationsOf<E>(values, *quantiser, {}) == 0);
    done += count;
  }
}

TEST_CASE("every finite value comes back within the bound, every other as it was") {
  CheckGuarantee<F32>(7'000'000, 100'000);
  CheckGuarantee<F64>(1'000'000, 70'000);
  CheckGuarantee<BF16>(1'000'000, 70'000);
  CheckGuarantee<F16>(1'000'000, 70'000);
}

TEST_CASE("the guarantee holds for a billion values", "[slow]") {
  CheckGuarantee<F32>(700'000'000, 1'000'000);
  CheckGuarantee<F64>(100'000'000, 1'000'000);
  CheckGuarantee<BF16>(100'000'000, 1'000'000);
  CheckGuarantee<F16>(100'000'000, 1'000'000);
}

template <typename E>
void CheckSameBytes(Kind kind, double bound, size_t count) {
  const auto values = MakeValues<E>(kind, count, bound, 5);
  const auto quantiser = ResolveAbsolute(E::kType, bound);
  REQUIRE(quantiser.ok());
  const Stream expected =
      CompressTo(ValuesIn<E>(values), *quantiser, {.kernels = &ReferenceKernels()});
  BitsVector<E> expected_values(count);
  REQUIRE(
      Decompress(expected, ValuesIn<E>(&expected_values), {.kernels = &ReferenceKernels()}).ok());
  for (const Kernels* kernels : AllKernels()) {
    INFO(kernels->name << ", kind " << static_cast<int>(kind) << ", bound " << bound);
    for (const int threads : {1, 3}) {
      const CodecOptions options{threads, kernels};
      REQUIRE(CompressTo(ValuesIn<E>(values), *quantiser, options) == expected);
      BitsVector<E> back(count, 1);
      REQUIRE(Decompress(expected, ValuesIn<E>(&back), options).ok());
      REQUIRE(back == expected_values);
    }
  }
}

TEST_CASE("all instruction sets and numbers of threads give the same bytes") {
  REQUIRE(AllKernels().size() >= 2);
  uint64_t round = 0;
  for (const Kind kind : kKinds) {
    for (const double bound : {1e-7, 1e-3, 0.1, 30.0}) {
      if (tests::kThreadSanitizer && bound != 1e-3) continue;
      CheckSameBytes<F32>(kind, bound, 140'000 + 77 * ++round);
    }
    CheckSameBytes<F64>(kind, 1e-3, 70'000);
    CheckSameBytes<BF16>(kind, 1e-2, 70'000);
    CheckSameBytes<F16>(kind, 1e-2, 70'000);
  }
}

TEST_CASE("relative bounds are the same for every instruction set and number of threads") {
  const auto values = MakeValues<F32>(Kind::kSpecials, 300'001, 1, 3);
  for (const BoundMode mode : {BoundMode::kRange, BoundMode::kRms}) {
    const auto expected =
        Resolve(ValuesIn<F32>(values), {mode, 1e-3}, {.kernels = &ReferenceKernels()});
    REQUIRE(expected.ok());
    for (const Kernels* kernels : AllKernels()) {
      for (const int threads : {1, 2, 5}) {
        const auto quantiser = Resolve(ValuesIn<F32>(values), {mode, 1e-3}, {threads, kernels});
        REQUIRE(quantiser.ok());
        REQUIRE(quantiser->absolute == expected->absolute);
      }
    }
  }
}

TEST_CASE("each kernel quantises lanes like the reference and is right about zeros") {
  const Kernels& reference = ReferenceKernels();
  uint64_t round = 0;
  for (const Kernels* kernels : AllKernels()) {
    for (const Kind kind : kKinds) {
      for (const double bound : {1e-9, 1e-3, 0.7, 1e3}) {
        INFO(kernels->name << ", kind " << static_cast<int>(kind) << ", bound " << bound);
        const auto bits = MakeValues<F32>(kind, kBlockValues, bound, ++round);
        float x[kBlockValues];
        std::memcpy(x, bits.data(), sizeof(x));
        const auto constants =
            ConstantsOf(ElementType::kF32, *ResolveAbsolute(ElementType::kF32, bound), 1 << 29);
        int32_t codes[kBlockValues], expected[kBlockValues];
        Exceptions exceptions, same;
        const int32_t reach = kernels->quantise_lanes_f32(x, constants, codes, &exceptions);
        const int32_t its = reference.quantise_lanes_f32(x, constants, expected, &same);
        REQUIRE(std::equal(codes, codes + kBlockValues, expected));
        REQUIRE(exceptions.raw == same.raw);
        REQUIRE(exceptions.negative_zero == same.negative_zero);
        REQUIRE((reach > kLargestExactCode) == (its > kLargestExactCode));
        for (const int32_t code : codes) REQUIRE(std::abs(code) <= reach);
        REQUIRE(kernels->all_zero_f32(x, constants) == reference.all_zero_f32(x, constants));
        if (!kernels->all_zero_f32(x, constants)) continue;
        uint32_t u[kBlockValues], largest = 1;
        REQUIRE(reference.quantise_plain_f32(x, constants, u, &largest));
        REQUIRE(largest == 0);
      }
    }
  }
}

TEST_CASE("blocks of zeros among others keep the bound and their -0") {
  std::mt19937_64 random(3);
  BitsVector<F32> values(200 * kBlockValues);
  for (size_t block = 0; block < 200; ++block) {
    const float scale = random() % 3 == 0 ? 2.0F : 0.5F;  // of the bound: codes 0 and 1, or all 0
    for (size_t i = 0; i < kBlockValues; ++i) {
      const auto part = static_cast<float>(static_cast<double>(random() % 2001) / 1000 - 1);
      values[block * kBlockValues + i] = std::bit_cast<uint32_t>(part * scale * 1e-3F);
    }
    if (random() % 5 == 0) values[block * kBlockValues + random() % kBlockValues] = F32::kSign;
    if (random() % 5 == 0) values[block * kBlockValues + random() % kBlockValues] = 0x80000001;
  }
  for (const Kernels* kernels : AllKernels()) {
    REQUIRE(ViolationsOf<F32>(values, *ResolveAbsolute(ElementType::kF32, 1e-3),
                              {.kernels = kernels}) == 0);
  }
}

TEST_CASE("each kernel gives the reference's numbers") {
  std::mt19937_64 random(11);
  for (const Kernels* kernels : AllKernels()) {
    INFO(kernels->name);
    const Kernels& reference = ReferenceKernels();
    for (uint32_t width = 1; width <= 32; ++width) {
      uint32_t u[kBlockValues], back[kBlockValues];
      for (uint32_t& number : u) number = static_cast<uint32_t>(random() >> (64 - width));
      std::vector<std::byte> packed(PackedBytes(width)), expected(PackedBytes(width));
      kernels->pack(width, u, packed.data());
      reference.pack(width, u, expected.data());
      REQUIRE(packed == expected);
      kernels->unpack(width, packed.data(), back);
      REQUIRE(std::memcmp(u, back, sizeof(u)) == 0);
      REQUIRE(kernels->bit_lengths(u) == reference.bit_lengths(u));
      const uint32_t largest = *std::max_element(u, u + kBlockValues);
      for (int k = 0; k < 60; ++k)
        u[random() % kBlockValues] = static_cast<uint32_t>(random() >> (32 + random() % 32));
      const uint32_t patched = std::max(largest, *std::max_element(u, u + kBlockValues));
      const Shape shape = kernels->choose_shape(u, patched);
      const Shape same = reference.choose_shape(u, patched);
      REQUIRE(shape.width == same.width);
      REQUIRE(shape.high_bits == same.high_bits);
      REQUIRE(shape.patches == same.patches);
      REQUIRE(shape.bytes == same.bytes);
    }
  }
}

// A block whose residuals have about so many bits, some of them more, some blocks with a value that
// is no code.
void MakeBlock(std::mt19937_64& random, uint64_t bits, float* x) {
  std::normal_distribution<float> normal;
  const float scale = std::exp2(static_cast<float>(bits)) * 1e-3F;
  const uint64_t far = random() % 60 + 1;
  for (size_t i = 0; i < kBlockValues; ++i) {
    x[i] = normal(random) * scale * (random() % far == 0 ? 0.9F : 0.1F);
  }
  const float specials[] = {-0.0F, 1e-42F, HUGE_VALF, 1e9F, -70.0F, std::nanf("")};
  if (random() % 8 == 0) x[random() % kBlockValues] = specials[random() % std::size(specials)];
}

// What a kernel that writes blocks of small numbers leaves.
struct Written {
  bool done = false;
  Shape shape;
  std::vector<std::byte> bytes = std::vector<std::byte>(1 + kSmallBlockRoom + kPatchSlack);

  // Where it writes: the byte before patches can be read.
  std::byte* at() { return bytes.data() + 1; }
  bool operator==(const Written& other) const {
    return done == other.done &&
           (!done ||
            (shape.width == other.shape.width && shape.patches == other.shape.patches &&
             shape.high_bits == other.shape.high_bits && shape.bytes == other.shape.bytes &&
             std::memcmp(bytes.data() + 1, other.bytes.data() + 1, shape.bytes) == 0));
  }
  PackedNumbers numbers() {
    const std::byte* positions = at() + PackedBytes(shape.width) + 2;
    return {
        shape.width, at(), {shape.patches, shape.high_bits, positions, positions + shape.patches}};
  }
};

TEST_CASE("each kernel writes and adds blocks of small numbers like the reference") {
  const Kernels& reference = ReferenceKernels();
  const auto constants =
      ConstantsOf(ElementType::kF32, *ResolveAbsolute(ElementType::kF32, 1e-3), 1 << 29);
  for (const Kernels* kernels : AllKernels()) {
    INFO(kernels->name);
    std::mt19937_64 random(23);
    size_t added = 0, refused = 0;
    Written before;
    for (int round = 0; round < 4000; ++round) {
      float x[kBlockValues];
      MakeBlock(random, random() % (round % 10 == 0 ? 18 : 9), x);
      Written written, expected;
      written.done = kernels->encode_small_f32(x, constants, &written.shape, written.at());
      expected.done = reference.encode_small_f32(x, constants, &expected.shape, expected.at());
      REQUIRE(written == expected);
      if (!written.done || written.numbers().bits() > kSmallTermBits) continue;
      if (before.done) {
        // Some lists of patches do not ascend.
        if (round % 16 == 0 && written.shape.patches > 1) {
          std::byte* positions = written.at() + PackedBytes(written.shape.width) + 2;
          positions[random() % (written.shape.patches - 1) + 1] = positions[0];
        }
        Written sum, same;
        sum.done = kernels->add_small(before.numbers(), written.numbers(), &sum.shape, sum.at());
        same.done =
            reference.add_small(before.numbers(), written.numbers(), &same.shape, same.at());
        REQUIRE(sum == same);
        ++(sum.done ? added : refused);
      }
      before = expected;
    }
    REQUIRE(added > 1000);
    REQUIRE(refused > 20);
  }
}

TEST_CASE("each kernel decodes patched numbers like the reference and sees their order") {
  std::mt19937_64 random(17);
  for (const Kernels* kernels : AllKernels()) {
    INFO(kernels->name);
    for (int round = 0; round < 3000; ++round) {
      const auto width = static_cast<uint32_t>(random() % (round % 3 == 0 ? 32 : 6));
      uint32_t u[kBlockValues];
      for (uint32_t& number : u) number = static_cast<uint32_t>(random());
      std::vector<std::byte> packed(PackedBytes(width));
      if (width > 0) ReferenceKernels().pack(width, u, packed.data());
      std::vector<std::byte> list(1 + kBlockValues + PackedBytes(32) + kPatchSlack);
      for (std::byte& byte : list) byte = static_cast<std::byte>(random());
      Patches patches{round % 4 == 0 ? 0 : random() % 255 + 1,
                      static_cast<uint32_t>(random() % (33 - width)), list.data() + 1, nullptr};
      // Every fourth position or so, so that most lists ascend; others have a wrong place.
      patches.count = std::min(patches.count, kBlockValues / 4);
      for (size_t k = 0; k < patches.count; ++k) {
        const size_t wrong = round % 5 == 0 && k == patches.count / 2 ? 4 : 0;
        list[1 + k] = static_cast<std::byte>(std::max(k * 4 + random() % 4, wrong) - wrong);
      }
      patches.high = patches.positions + patches.count;
      const auto base = static_cast<int32_t>(random() >> 40);
      float x[kBlockValues], expected[kBlockValues];
      const bool ascend = kernels->decode_f32(width, packed.data(), patches, base, 0.37F, x);
      REQUIRE(ascend ==
              ReferenceKernels().decode_f32(width, packed.data(), patches, base, 0.37F, expected));
      // Two patches of one number are an error, whatever comes of them.
      if (ascend) REQUIRE(std::memcmp(x, expected, sizeof(x)) == 0);
    }
  }
}

}  // namespace
}  // namespace trireme::compress
