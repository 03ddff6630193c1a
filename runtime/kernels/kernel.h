// Kernels: an ordered list of implementations per (operator, phase, dtype), the plain reference
// last.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/graph/op_spec.h"

namespace trireme::kernels {

// A prepared operator: shapes fixed, pointers given at each run. Run allocates nothing and caches
// no pointer. Used by one thread at a time.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void Run(const graph::OpCall& call) = 0;
  // Bytes of call.scratch that Run needs.
  virtual size_t ScratchBytes() const { return 0; }
};

struct PrepareOptions {
  size_t scratch_limit_bytes = 0;  // an implementation that needs more says no
  int threads = 1;                 // OpenMP threads it may use
};

// Returns null where the implementation does not take this spec.
using KernelFactory = std::function<std::unique_ptr<Kernel>(const graph::OpSpec& spec,
                                                            const PrepareOptions& options)>;

class KernelRegistry {
 public:
  // Later registrations of the same backend name come after earlier ones; lists are tried in order.
  void Register(graph::OpKind kind, graph::Phase phase, tensor::DType dtype,
                std::string implementation, KernelFactory factory);
  // The first implementation that takes `spec`; a warning is logged, once per operator and phase,
  // where that is not the first one registered for it. Unimplemented naming operator, phase and
  // dtype if none does.
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const graph::OpSpec& spec,
                                                  const PrepareOptions& options) const;

 private:
  struct Entry {
    graph::OpKind kind;
    graph::Phase phase;
    tensor::DType dtype;
    std::string implementation;
    KernelFactory factory;
  };
  std::vector<Entry> entries_;
};

// Plain loops, f64, f32 and bf16 (sums in f64 where it costs nothing); never removed.
void RegisterReferenceKernels(KernelRegistry& registry);
// oneDNN products and vectorised, threaded loops, f32 and bf16. Register before the reference.
void RegisterCpuKernels(KernelRegistry& registry);

}  // namespace trireme::kernels
