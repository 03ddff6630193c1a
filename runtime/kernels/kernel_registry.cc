// The ordered list of implementations: a linear search, once per operator of a plan.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/graph/op_schema.h"
#include "runtime/kernels/kernel.h"
#include "runtime/tensor/dtype.h"

namespace trireme::kernels {
namespace {

std::string_view NameOf(graph::Phase phase) {
  constexpr std::string_view kNames[] = {"forward", "input gradient", "weight gradient"};
  return kNames[static_cast<size_t>(phase)];
}

// Once per operator and phase in a process: a step takes many times as long where the plain loops
// run, and nothing else would tell.
void WarnOfFallback(const graph::OpSpec& spec, const PrepareOptions& options,
                    const std::string& refused, const std::string& taken) {
  static std::mutex mutex;
  static std::set<std::pair<graph::OpKind, graph::Phase>> warned;
  {
    const std::lock_guard lock(mutex);
    if (!warned.emplace(spec.kind, spec.phase).second) return;
  }
  spdlog::warn(
      "{} ({}, {}) of {} rows, {} columns and {} tokens is refused by the {} kernels with a "
      "scratch of {} bytes; the {} kernel runs in their place and may be many times slower",
      graph::SchemaOf(spec.kind).name, NameOf(spec.phase), tensor::NameOf(spec.dtype), spec.rows,
      spec.cols, spec.tokens, refused, options.scratch_limit_bytes, taken);
}

}  // namespace

void KernelRegistry::Register(graph::OpKind kind, graph::Phase phase, tensor::DType dtype,
                              std::string implementation, KernelFactory factory) {
  TRIREME_CHECK(factory != nullptr);
  entries_.push_back({kind, phase, dtype, std::move(implementation), std::move(factory)});
}

absl::StatusOr<std::unique_ptr<Kernel>> KernelRegistry::Prepare(
    const graph::OpSpec& spec, const PrepareOptions& options) const {
  std::string refused;
  for (const Entry& entry : entries_) {
    if (entry.kind != spec.kind || entry.phase != spec.phase || entry.dtype != spec.dtype) continue;
    if (std::unique_ptr<Kernel> kernel = entry.factory(spec, options)) {
      if (!refused.empty()) WarnOfFallback(spec, options, refused, entry.implementation);
      return kernel;
    }
    refused += (refused.empty() ? "" : ", ") + entry.implementation;
  }
  const std::string why =
      refused.empty()
          ? std::string("none is registered; register the reference kernels")
          : fmt::format("{} rows, {} columns and a scratch of {} bytes are refused by {}",
                        spec.rows, spec.cols, options.scratch_limit_bytes, refused);
  return absl::UnimplementedError(fmt::format("no kernel for {} ({}, {}): {}",
                                              graph::SchemaOf(spec.kind).name, NameOf(spec.phase),
                                              tensor::NameOf(spec.dtype), why));
}

}  // namespace trireme::kernels
