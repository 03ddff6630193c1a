#include "runtime/benchmark/limits.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "runtime/base/status_macros.h"
#include "runtime/benchmark/numbers.h"
#include "runtime/kernels/cpu/product.h"

namespace trireme::benchmark {
namespace {
using tensor::DType;

constexpr int64_t kSide = 1536;
constexpr size_t kMatrixBytes = kSide * kSide * sizeof(float);
// 64 MiB an array: no cache of a core holds it.
constexpr int64_t kTriad = int64_t{16} << 20;
constexpr size_t kScratchBytes = size_t{64} << 20;

// Part `part` of `parts` of the triad; `stream`: past the cache.
void TriadPart(float* a, int part, int parts, bool stream) {
  const hwy::HWY_NAMESPACE::ScalableTag<float> d;
  namespace hn = hwy::HWY_NAMESPACE;
  const float* b = a + kTriad;
  const float* c = b + kTriad;
  constexpr int64_t kLines = kTriad / 16;
  const int64_t end = kLines * (part + 1) / parts * 16;
  const auto s = hn::Set(d, 0.5F);
  for (int64_t i = kLines * part / parts * 16; i < end; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto sum = hn::MulAdd(s, hn::Load(d, c + i), hn::Load(d, b + i));
    stream ? hn::Stream(sum, d, a + i) : hn::Store(sum, d, a + i);
  }
  if (stream) hwy::FlushStream();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Limits>> Limits::Create(int threads, Stopwatch stopwatch) {
  std::unique_ptr<Limits> limits(new Limits(threads, stopwatch));
  ASSIGN_OR_RETURN(limits->factors_, MapNumbers(3 * kMatrixBytes, DType::kBf16, threads));
  ASSIGN_OR_RETURN(limits->triad_, MapNumbers(3 * kTriad * sizeof(float), DType::kF32, threads));
  ASSIGN_OR_RETURN(limits->scratch_, MapNumbers(kScratchBytes, DType::kF32, threads));
  return limits;
}

double Limits::Fastest(std::vector<Way>& ways) const {
  double best = std::numeric_limits<double>::infinity();
  size_t fastest = 0;
  for (size_t i = 0; i < ways.size(); ++i) {
    if (ways.size() > 1) ways[i]();  // the first time: caches, oneDNN's code
    for (int run = 0; run < 3; ++run) {
      const double seconds = stopwatch_.Seconds(ways[i]);
      if (seconds >= best) continue;
      best = seconds;
      fastest = i;
    }
  }
  if (ways.size() > 1) ways = {ways[fastest]};
  return best;
}

double Limits::ProductRate(DType dtype) {
  auto [found, first] = products_.try_emplace(dtype);
  if (first) found->second = WaysToMultiply(dtype);
  return 2.0 * kSide * kSide * kSide / Fastest(found->second);
}

double Limits::PackedProductRate(DType dtype) {
  std::vector<Way> ways = {OneDnnProduct(dtype, /*packed=*/true)};
  if (ways[0] == nullptr) return 0;
  ways[0]();
  return 2.0 * kSide * kSide * kSide / Fastest(ways);
}

double Limits::MemoryRate() {
  if (triads_.empty()) {
    for (const bool stream : {false, true}) {
      triads_.emplace_back([this, stream] {
        auto* a = reinterpret_cast<float*>(triad_.data());
#pragma omp parallel num_threads(threads_)
        TriadPart(a, omp_get_thread_num(), omp_get_num_threads(), stream);
      });
    }
  }
  return 3.0 * sizeof(float) * kTriad / Fastest(triads_);
}

template <class Look>
double Limits::Recent(std::optional<Seen>& seen, std::chrono::nanoseconds age, const Look& look) {
  if (!seen.has_value() || std::chrono::steady_clock::now() - seen->at > age) {
    const double rate = look();
    seen = Seen{rate, std::chrono::steady_clock::now()};
  }
  return seen->rate;
}

double Limits::RecentProductRate(DType dtype, std::chrono::nanoseconds age) {
  return Recent(seen_products_[dtype], age, [&] { return ProductRate(dtype); });
}

double Limits::RecentMemoryRate(std::chrono::nanoseconds age) {
  return Recent(seen_memory_, age, [&] { return MemoryRate(); });
}

std::vector<Limits::Way> Limits::WaysToMultiply(DType dtype) {
  std::vector<Way> ways;
  for (Way& way : std::vector<Way>{OneDnnProduct(dtype, /*packed=*/false), OwnProduct(dtype)}) {
    if (way != nullptr) ways.push_back(std::move(way));
  }
  return ways;
}

Limits::Way Limits::OneDnnProduct(DType dtype, bool packed) {
  using Memory = dnnl::memory;
  try {
    omp_set_num_threads(threads_);
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const auto type = dtype == DType::kBf16 ? Memory::data_type::bf16 : Memory::data_type::f32;
    const auto tag = packed ? Memory::format_tag::any : Memory::format_tag::ab;
    const Memory::desc factor({kSide, kSide}, type, tag);
    const Memory::desc c({kSide, kSide}, type, Memory::format_tag::ab);
    const dnnl::matmul::primitive_desc description({factor, factor, c}, engine);
    const dnnl::matmul product(description);
    std::byte* memory = factors_.data();
    const Memory a_memory(description.src_desc(), engine, memory);
    const Memory b_memory(description.weights_desc(), engine, memory + kMatrixBytes);
    const Memory c_memory(c, engine, memory + 2 * kMatrixBytes);
    const dnnl::stream stream(engine);
    return [=] {
      product.execute(
          stream,
          {{DNNL_ARG_SRC, a_memory}, {DNNL_ARG_WEIGHTS, b_memory}, {DNNL_ARG_DST, c_memory}});
    };
  } catch (const dnnl::error&) {
    return nullptr;  // no bf16 on this processor
  }
}

Limits::Way Limits::OwnProduct(DType dtype) {
  kernels::cpu::ProductShape shape;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldc = kSide;
  shape.threads = threads_;
  shape.dtype = shape.c_dtype = dtype;
  std::shared_ptr<kernels::cpu::Product> product =
      kernels::cpu::MakeProduct(shape, scratch_.size());
  if (product == nullptr) return nullptr;
  return [this, product] {
    std::byte* memory = factors_.data();
    product->Run({.a = memory, .b = memory + kMatrixBytes, .c = memory + 2 * kMatrixBytes},
                 scratch_.span());
  };
}

}  // namespace trireme::benchmark
