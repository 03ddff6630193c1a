// An implementation that is passed over is told of, once: the next one may be many times slower.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <memory>
#include <sstream>
#include <string>

#include "runtime/kernels/kernel.h"

namespace trireme::kernels {
namespace {

class Idle : public Kernel {
 public:
  void Run(const graph::OpCall&) override {}
};

TEST_CASE("registry: a fallback is logged once per operator and phase, with its reason") {
  std::ostringstream text;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)));
  KernelRegistry registry;
  // An operator that no other test of this program prepares in this phase.
  constexpr auto kKind = graph::OpKind::kReduceScatter;
  registry.Register(
      kKind, graph::Phase::kForward, tensor::DType::kF32, "fast",
      [](const graph::OpSpec&, const PrepareOptions& options) -> std::unique_ptr<Kernel> {
        if (options.scratch_limit_bytes < 100) return nullptr;
        return std::make_unique<Idle>();
      });
  registry.Register(
      kKind, graph::Phase::kForward, tensor::DType::kF32, "slow",
      [](const graph::OpSpec&, const PrepareOptions&) { return std::make_unique<Idle>(); });
  graph::OpSpec spec;
  spec.kind = kKind;
  spec.rows = 7;
  const bool fast = registry.Prepare(spec, {.scratch_limit_bytes = 100}).ok();
  const std::string none = text.str();
  const bool slow = registry.Prepare(spec, {.scratch_limit_bytes = 99}).ok();
  const std::string once = text.str();
  const bool again = registry.Prepare(spec, {.scratch_limit_bytes = 98}).ok();
  const std::string twice = text.str();
  spdlog::set_default_logger(before);
  CHECK((fast && slow && again));
  CHECK(none.empty());
  for (const char* part : {"warning", "ReduceScatter (forward, f32)", "7 rows", "by the fast",
                           "99 bytes", "the slow kernel"}) {
    INFO(once);
    CHECK(once.find(part) != std::string::npos);
  }
  CHECK(twice == once);
}

}  // namespace
}  // namespace trireme::kernels
