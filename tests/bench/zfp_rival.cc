#include "tests/bench/zfp_rival.h"

#include <zfp.h>

#include <chrono>
#include <memory>

namespace trireme::compress {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ZfpResult RunZfp(const std::string& type, const std::vector<std::byte>& values, double bound) {
  if ((type != "f32" && type != "f64") || !(bound > 0)) return {};
  const zfp_type element = type == "f32" ? zfp_type_float : zfp_type_double;
  std::vector<std::byte> data = values;  // zfp takes a pointer that is not const.
  const std::unique_ptr<zfp_field, void (*)(zfp_field*)> field(
      zfp_field_1d(data.data(), element, data.size() / zfp_type_size(element)), zfp_field_free);
  const std::unique_ptr<zfp_stream, void (*)(zfp_stream*)> zfp(zfp_stream_open(nullptr),
                                                               zfp_stream_close);
  zfp_stream_set_accuracy(zfp.get(), bound);
  std::vector<std::byte> coded(zfp_stream_maximum_size(zfp.get(), field.get()));
  const std::unique_ptr<bitstream, void (*)(bitstream*)> bits(
      stream_open(coded.data(), coded.size()), stream_close);
  zfp_stream_set_bit_stream(zfp.get(), bits.get());
  ZfpResult result;
  zfp_stream_rewind(zfp.get());
  Clock::time_point start = Clock::now();
  result.bytes = zfp_compress(zfp.get(), field.get());
  result.compress_seconds = Since(start);
  zfp_stream_rewind(zfp.get());
  start = Clock::now();
  zfp_decompress(zfp.get(), field.get());
  result.decompress_seconds = Since(start);
  return result;
}

}  // namespace trireme::compress
