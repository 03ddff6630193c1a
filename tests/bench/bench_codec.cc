// The codec on one core (or --threads): time to compress and decompress as a ratio to memcpy of the
// same bytes, taken in turns in one run over buffers beyond the cache; ratio; largest error.
//   bench_codec --file F --bound rms:0.1 [--type f32]
//   bench_codec --data gauss|smooth|offset|constant|random --bound range:1e-3 [--values N]
// The last line is JSON. Values are coded with the bound resolved before, as a collective does;
// with_bound_to_memcpy also counts the pass that finds a relative bound.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "compress/element.h"
#include "compress/kernels.h"
#include "tests/bench/zfp_rival.h"

namespace trireme::compress {
namespace {

struct BenchOptions {
  std::string file, data = "gauss", bound = "rms:0.1", type = "f32", kernels = "best";
  size_t values = size_t{1} << 24;
  double seconds = 3;
  int threads = 1;
};

using Bytes = std::vector<std::byte>;

// N(0, 1).
std::vector<float> Gauss(size_t count, float mean) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(mean, 1);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

// A cube of plane waves whose amplitude falls with their frequency, row by row.
std::vector<float> SmoothField(size_t count) {
  constexpr int kWaves = 48;
  const auto side = static_cast<size_t>(std::cbrt(static_cast<double>(count)));
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<float> values(count);
  for (int wave = 0; wave < kWaves; ++wave) {
    double k[3];
    double length = 0;
    for (double& component : k) {
      component = std::floor((uniform(generator) * 2 - 1) * (1 + wave)) * 6.283185307 /
                  static_cast<double>(side);
      length += component * component;
    }
    const double amplitude = 1 / (1 + std::sqrt(length) * static_cast<double>(side) / 6.283185307);
    const double phase = uniform(generator) * 6.283185307;
    for (size_t row = 0; row * side < count; ++row) {
      const double start =
          phase + k[1] * static_cast<double>(row % side) + k[2] * static_cast<double>(row / side);
      for (size_t i = row * side; i < std::min(count, (row + 1) * side); ++i) {
        values[i] += static_cast<float>(
            amplitude * std::sin(start + k[0] * static_cast<double>(i - row * side)));
      }
    }
  }
  return values;
}

std::vector<float> Synthetic(const BenchOptions& options) {
  const size_t count = options.values;
  if (options.data == "gauss") return Gauss(count, 0);
  if (options.data == "offset") return Gauss(count, 1000);
  if (options.data == "smooth") return SmoothField(count);
  if (options.data == "constant") return std::vector<float>(count, 3.5F);
  if (options.data == "random") {
    std::mt19937 generator(1);
    std::vector<float> values(count);
    for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    return values;
  }
  std::cerr << "bench_codec: --data " << options.data
            << ": expected gauss, smooth, offset, constant or random\n";
  std::exit(2);
}

template <typename E>
Bytes FromF32(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(typename E::Bits));
  for (size_t i = 0; i < values.size(); ++i) {
    const typename E::Bits bits = E::Round(static_cast<double>(values[i]));
    std::memcpy(bytes.data() + i * sizeof(bits), &bits, sizeof(bits));
  }
  return bytes;
}

Bytes Load(const BenchOptions& options, ElementType type) {
  if (options.file.empty()) {
    const std::vector<float> values = Synthetic(options);
    return WithElement(type, [&]<typename E>(E) { return FromF32<E>(values); });
  }
  std::ifstream file(options.file, std::ios::binary | std::ios::ate);
  if (!file) {
    std::cerr << "bench_codec: cannot read " << options.file << "\n";
    std::exit(2);
  }
  Bytes bytes(static_cast<size_t>(file.tellg()) / SizeOf(type) * SizeOf(type));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

struct Verdict {
  uint64_t violations = 0;
  double largest_error_to_bound = 0;
};

// A finite value beyond the bound, or any other value with other bits, is a violation.
template <typename E>
Verdict Compare(const Bytes& before, const Bytes& after, double bound) {
  Verdict verdict;
  for (size_t at = 0; at < before.size(); at += sizeof(typename E::Bits)) {
    typename E::Bits x, y;
    std::memcpy(&x, before.data() + at, sizeof(x));
    std::memcpy(&y, after.data() + at, sizeof(y));
    if (x == y) continue;
    if (!IsFinite<E>(x) || IsNegativeZero<E>(x) || IsDenormal<E>(x)) {
      ++verdict.violations;
      continue;
    }
    const double error = std::fabs(E::Value(x) - E::Value(y));
    if (!(error <= bound)) ++verdict.violations;
    verdict.largest_error_to_bound = std::max(verdict.largest_error_to_bound, error / bound);
  }
  return verdict;
}

double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Each of `works` in turn, again and again; the fastest of each: other work on the machine only
// adds.
std::vector<double> Fastest(double seconds, const std::vector<std::function<void()>>& works) {
  std::vector<double> fastest(works.size(), HUGE_VAL);
  double spent = 0;
  for (int round = 0; round < 5 || spent < seconds; ++round) {
    for (size_t k = 0; k < works.size(); ++k) {
      const double time = SecondsOf(works[k]);
      spent += time;
      fastest[k] = std::min(fastest[k], time);
    }
  }
  return fastest;
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << "bench_codec: " << value.status() << "\n";
    std::exit(2);
  }
  return *std::move(value);
}

const Kernels* KernelsNamed(const std::string& name) {
  if (name == "best") return &BestKernels();
  std::string names;
  for (const Kernels* kernels : AllKernels()) {
    if (name == kernels->name) return kernels;
    names += std::string(" ") + kernels->name;
  }
  std::cerr << "bench_codec: --kernels " << name << ": this processor has best" << names << "\n";
  std::exit(2);
}

void PrintStatistics(const StreamStatistics& s) {
  std::printf("pieces: %llu quantised, %llu ordered, %llu verbatim, %llu of them by differences\n",
              static_cast<unsigned long long>(s.quantised_pieces),
              static_cast<unsigned long long>(s.ordered_pieces),
              static_cast<unsigned long long>(s.verbatim_pieces),
              static_cast<unsigned long long>(s.predicted_pieces));
  std::printf("blocks: %llu, empty %llu, constant %llu, verbatim %llu\n",
              static_cast<unsigned long long>(s.blocks),
              static_cast<unsigned long long>(s.empty_blocks),
              static_cast<unsigned long long>(s.constant_blocks),
              static_cast<unsigned long long>(s.verbatim_blocks));
  std::printf("bytes: packed %llu, patches %llu (%llu), exceptions %llu (%llu)\n",
              static_cast<unsigned long long>(s.packed_bytes),
              static_cast<unsigned long long>(s.patch_bytes),
              static_cast<unsigned long long>(s.patches),
              static_cast<unsigned long long>(s.exception_bytes),
              static_cast<unsigned long long>(s.exceptions));
}

void Run(const BenchOptions& options) {
  const ElementType type = Must(ParseElementType(options.type));
  const Bound bound = Must(ParseBound(options.bound));
  const Bytes input = Load(options, type);
  const size_t count = input.size() / SizeOf(type);
  const Values values{type, input.data(), count};
  const CodecOptions codec{options.threads, KernelsNamed(options.kernels)};
  const Quantiser quantiser = Must(Resolve(values, bound, codec));
  Bytes stream(MaxCompressedBytes(type, count));
  Bytes output(input.size(), std::byte{1});
  Bytes copied(input.size(), std::byte{1});
  size_t bytes = 0;
  const auto compress = [&] { bytes = Must(Compress(values, quantiser, stream, codec)); };
  const auto decompress = [&] {
    const absl::Status status =
        Decompress({stream.data(), bytes}, {type, output.data(), count}, codec);
    if (!status.ok()) std::cerr << status << "\n";
  };
  const auto copy = [&] { std::memcpy(copied.data(), input.data(), input.size()); };
  const auto resolve = [&] { Must(Resolve(values, bound, codec)); };
  const std::vector<double> times = Fastest(options.seconds, {copy, compress, decompress, resolve});
  const Verdict verdict = WithElement(
      type, [&]<typename E>(E) { return Compare<E>(input, output, quantiser.absolute); });
  const double ratio = static_cast<double>(input.size()) / static_cast<double>(bytes);
  const auto gigabytes = [&](double time) {
    return static_cast<double>(input.size()) / time * 1e-9;
  };
  std::printf("%zu values of %s, bound %s = %g, step %g, kernels %s, %d thread(s)\n", count,
              options.type.c_str(), options.bound.c_str(), quantiser.absolute, quantiser.step,
              codec.kernels->name, options.threads);
  PrintStatistics(Must(Inspect({stream.data(), bytes})));
  std::printf("GB/s: memcpy %.2f, compress %.2f, decompress %.2f, bound %.2f\n",
              gigabytes(times[0]), gigabytes(times[1]), gigabytes(times[2]), gigabytes(times[3]));
  nlohmann::json json = {{"ratio", ratio},
                         {"compress_to_memcpy", times[0] / times[1]},
                         {"decompress_to_memcpy", times[0] / times[2]},
                         {"violations", verdict.violations},
                         {"largest_error_to_bound", verdict.largest_error_to_bound},
                         {"with_bound_to_memcpy", times[0] / (times[1] + times[3])},
                         {"memcpy_gb_per_s", gigabytes(times[0])},
                         {"values", count},
                         {"kernels", codec.kernels->name}};
  const ZfpResult zfp = RunZfp(options.type, input, quantiser.absolute);
  if (zfp.bytes > 0) {
    const double zfp_ratio = static_cast<double>(input.size()) / static_cast<double>(zfp.bytes);
    std::printf("zfp (1-D, fixed accuracy): ratio %.2f, GB/s: compress %.2f, decompress %.2f\n",
                zfp_ratio, gigabytes(zfp.compress_seconds), gigabytes(zfp.decompress_seconds));
    json["zfp"] = {{"ratio", zfp_ratio},
                   {"compress_to_memcpy", times[0] / zfp.compress_seconds},
                   {"decompress_to_memcpy", times[0] / zfp.decompress_seconds}};
  }
  std::printf("%s\n", json.dump().c_str());
}

}  // namespace
}  // namespace trireme::compress

int main(int argc, char** argv) {
  trireme::compress::BenchOptions options;
  CLI::App app("The codec's speed as a ratio to memcpy, its ratio and its errors.");
  app.add_option("--file", options.file, "raw little-endian values");
  app.add_option("--data", options.data, "gauss, smooth, offset, constant or random");
  app.add_option("--values", options.values, "how many, for --data");
  app.add_option("--bound", options.bound, "abs:E, range:E or rms:E");
  app.add_option("--type", options.type, "f32, bf16, f16 or f64");
  app.add_option("--threads", options.threads, "threads of the codec; memcpy has one");
  app.add_option("--kernels", options.kernels, "best, an instruction set, or reference");
  app.add_option("--seconds", options.seconds, "to measure");
  CLI11_PARSE(app, argc, argv);
  trireme::compress::Run(options);
  return 0;
}
