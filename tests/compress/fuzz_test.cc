// Five minutes of changed streams and segments for the decoders, meant for a build with sanitizers:
//   test_compress "[fuzz]"
#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>

#include "compress/kernels.h"
#include "compress/stream_sum.h"
#include "runtime/checksum/crc32c.h"
#include "tests/compress/reseal.h"
#include "tests/compress/sample_values.h"

namespace trireme::compress {
namespace {

using Stream = std::vector<std::byte>;
using Random = std::mt19937_64;

constexpr auto kTime = std::chrono::minutes(5);
constexpr size_t kMostValues = 140'000;

template <typename E>
Stream RandomStream(Random& random) {
  const Kind kind = kKinds[random() % std::size(kKinds)];
  const double bound = random() % 8 == 0 ? 0 : BoundOf(random() % 1000);
  const size_t count = random() % 16 == 0 ? random() % kMostValues : random() % 1500;
  const auto values = MakeValues<E>(kind, count, bound == 0 ? 1 : bound, random());
  auto stream = Compress(ValuesIn<E>(values), {BoundMode::kAbsolute, bound});
  REQUIRE(stream.ok());
  return *std::move(stream);
}

// Up to four bytes changed, inserted or removed, mostly near `rich`.
void Change(Random& random, size_t rich, Stream* stream) {
  for (size_t k = 0; k <= random() % 4 && !stream->empty(); ++k) {
    const size_t at = random() % 3 == 0 ? random() % stream->size()
                                        : std::min(stream->size() - 1, rich + random() % 64);
    const auto place = stream->begin() + static_cast<std::ptrdiff_t>(at);
    switch (random() % 8) {
      case 0:
        stream->insert(place, static_cast<std::byte>(random()));
        break;
      case 1:
        stream->erase(place);
        break;
      case 2:
        stream->resize(stream->size() - random() % std::min<size_t>(stream->size(), 100));
        break;
      case 3:
        *place ^= static_cast<std::byte>(1 << random() % 8);
        break;
      default:
        *place = static_cast<std::byte>(random());
    }
  }
}

// Lets the header say what is there, so that more than the header is reached.
void Mend(Stream* stream) {
  if (stream->size() < 72) return;
  uint64_t size = stream->size();
  uint32_t pieces = 0;
  std::memcpy(&pieces, stream->data() + 56, 4);
  std::memcpy(stream->data() + 48, &size, 8);
  if (pieces == 1) {
    const auto bytes = static_cast<uint32_t>(size - 72);
    std::memcpy(stream->data() + 64, &bytes, 4);
  }
  if (size_t{8} * pieces <= size - 64) Reseal(stream);
}

// Heap memory of just the right size, so that a sanitizer sees any step beyond it.
bool Decodes(Random& random, const Stream& stream) {
  const auto info = ReadInfo(stream);
  (void)Inspect(stream);
  if (!info.ok() || info->count > 2 * kMostValues) return false;
  const auto all = AllKernels();
  const CodecOptions options{1 + static_cast<int>(random() % 2), all[random() % all.size()]};
  const auto count = static_cast<size_t>(info->count);
  const size_t first = count > 0 && random() % 2 == 0 ? random() % count : 0;
  const size_t some = first == 0 ? count : random() % (count - first);
  Stream out(some * SizeOf(info->type));
  return DecompressRange(stream, first, {info->type, out.data(), some}, options).ok();
}

bool SegmentDecodes(Random& random) {
  const size_t count = 1 + random() % 1000;
  const auto quantiser = ResolveAbsolute(ElementType::kF32, 1e-3);
  std::vector<Stream> segments(2);
  for (Stream& segment : segments) {
    const auto bits = MakeValues<F32>(kKinds[random() % std::size(kKinds)], count, 1e-3, random());
    std::vector<float> values(count);
    std::memcpy(values.data(), bits.data(), count * sizeof(float));
    segment.resize(MaxSegmentBytes(count));
    segment.resize(EncodeSegment(values, *quantiser, segment));
  }
  Change(random, 48, &segments[0]);
  if (segments[0].size() >= 48) {
    const uint32_t crc = checksum::Crc32c(std::span(segments[0]).subspan(48),
                                          checksum::Crc32c(std::span(segments[0]).first(44)));
    std::memcpy(segments[0].data() + 44, &crc, 4);
  }
  Stream sum(MaxSegmentBytes(count));
  SegmentAdder adder(2);
  const std::span<const std::byte> terms[] = {segments[0], segments[1]};
  const bool added = adder.Add(terms, {count, *quantiser}, sum).ok();
  std::vector<float> out(count);
  return DecodeSegment(segments[0], *quantiser, out).ok() && added;
}

TEST_CASE("five minutes of changed streams and segments lead nowhere outside", "[.fuzz]") {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  Random random(seed);
  const auto end = std::chrono::steady_clock::now() + kTime;
  uint64_t tried = 0, decoded = 0;
  while (std::chrono::steady_clock::now() < end) {
    const Stream seeds[] = {RandomStream<F32>(random), RandomStream<BF16>(random),
                            RandomStream<F16>(random), RandomStream<F64>(random)};
    for (int k = 0; k < 400; ++k) {
      Stream changed = seeds[random() % std::size(seeds)];
      Change(random, 72, &changed);
      if (random() % 8 != 0) Mend(&changed);
      changed.shrink_to_fit();
      decoded += Decodes(random, changed) ? 1 : 0;
      decoded += SegmentDecodes(random) ? 1 : 0;
      tried += 2;
    }
  }
  std::cout << tried << " tried, " << decoded << " decoded" << std::endl;
  CHECK(decoded > tried / 100);  // The changes reach the inside
  CHECK(decoded < tried);        // and are noticed.
}

}  // namespace
}  // namespace trireme::compress
