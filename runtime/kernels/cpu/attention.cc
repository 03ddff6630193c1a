// Attention: tasks of one head (forward) or one key/value group (backward) over the threads. No
// task shares a sum with another, so the bits do not depend on who runs which.
#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/kernels/cpu/attention_loops.h"
#include "runtime/kernels/cpu/dropout.h"
#include "runtime/kernels/cpu/factories.h"

namespace trireme::kernels::cpu {
namespace {
using graph::OpCall;
using graph::OpSpec;
using graph::Phase;

constexpr size_t kAlignment = 64;

template <typename T>
class Attention : public Kernel {
 public:
  // As many threads as have a task and whose workspaces fit the scratch.
  Attention(const OpSpec& spec, const PrepareOptions& options)
      : spec_(spec),
        samples_(spec.rows / spec.tokens),
        workspace_floats_(spec.phase == Phase::kForward
                              ? AttentionForwardFloats(spec.tokens, spec.head_dim)
                              : AttentionBackwardFloats(spec.tokens, spec.head_dim)) {
    const size_t limit = options.scratch_limit_bytes;
    const int64_t fitting =
        limit < kAlignment
            ? 0
            : static_cast<int64_t>((limit - kAlignment) / sizeof(float)) / workspace_floats_;
    threads_ = static_cast<int>(std::max<int64_t>(
        1, std::min<int64_t>({options.threads, samples_ * TasksOfSample(spec), fitting})));
  }

  size_t ScratchBytes() const override {
    return static_cast<size_t>(threads_) * static_cast<size_t>(workspace_floats_) * sizeof(float) +
           kAlignment;
  }

  void Run(const OpCall& call) override {
    TRIREME_CHECK(call.scratch.size() >= ScratchBytes());
    const auto address = reinterpret_cast<uintptr_t>(call.scratch.data());
    auto* workspace =
        reinterpret_cast<float*>((address + kAlignment - 1) / kAlignment * kAlignment);
    const DropoutStream stream = MakeDropoutStream(spec_, call);
    const DropoutStream* dropout = HasDropout(spec_, call) ? &stream : nullptr;
    const int64_t tasks = samples_ * TasksOfSample(spec_);
    if (threads_ == 1) {
      for (int64_t task = 0; task < tasks; ++task) RunTask(call, dropout, task, workspace);
      return;
    }
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; ++task) {
      RunTask(call, dropout, task, workspace + omp_get_thread_num() * workspace_floats_);
    }
  }

 private:
  static int64_t TasksOfSample(const OpSpec& spec) {
    return spec.phase == Phase::kForward ? spec.heads : spec.kv_heads;
  }
  int64_t HeadsOfGroup() const { return spec_.heads / spec_.kv_heads; }

  AttentionHead<T> HeadOf(const OpCall& call, const DropoutStream* dropout, int64_t sample,
                          int64_t head) const {
    const OpSpec& s = spec_;
    const int64_t row = sample * s.tokens;
    const int64_t q = row * s.x_ld + head * s.head_dim;
    const int64_t k = row * s.x_ld + (s.heads + head / HeadsOfGroup()) * s.head_dim;
    const int64_t y = row * s.y_ld + head * s.head_dim;
    AttentionHead<T> h;
    const T* x = call.In<T>(graph::kX);
    h.q = x + q;
    h.k = x + k;
    h.v = x + k + s.kv_heads * s.head_dim;
    if (s.phase == Phase::kForward) {
      h.y_out = call.Out<T>(graph::kY) + y;
    } else {
      h.y = call.In<T>(graph::kY) + y;
      h.dy = call.In<T>(graph::kDY) + y;
      h.dq = call.Out<T>(graph::kDX) + q;
    }
    h.stats = call.Out<float>(graph::kStats) + row * s.heads + head;
    h.tokens = s.tokens;
    h.head_dim = s.head_dim;
    h.x_ld = s.x_ld;
    h.y_ld = s.y_ld;
    h.stats_ld = s.heads;
    h.dropout = dropout;
    h.first_element = static_cast<uint64_t>(
        ((call.first_sample + sample) * s.global_heads + s.head_begin + head) * s.tokens *
        s.tokens);
    return h;
  }

  void RunTask(const OpCall& call, const DropoutStream* dropout, int64_t task,
               float* workspace) const {
    const AttentionLoops<T>& loops = AttentionLoopsOf<T>();
    const int64_t per_sample = TasksOfSample(spec_);
    const int64_t sample = task / per_sample;
    if (spec_.phase == Phase::kForward) {
      loops.forward(HeadOf(call, dropout, sample, task % per_sample), workspace);
      return;
    }
    const int64_t group = task % per_sample;
    const AttentionHead<T> first = HeadOf(call, dropout, sample, group * HeadsOfGroup());
    loops.backward_begin(first, workspace);
    for (int64_t i = 0; i < HeadsOfGroup(); ++i) {
      loops.backward_add(HeadOf(call, dropout, sample, group * HeadsOfGroup() + i), workspace);
    }
    T* dk = call.Out<T>(graph::kDX) + (first.k - call.In<T>(graph::kX));
    loops.backward_end(first, dk, dk + spec_.kv_heads * spec_.head_dim, workspace);
  }

  OpSpec spec_;
  int64_t samples_;
  int64_t workspace_floats_;
  int threads_ = 1;
};

}  // namespace

template <typename T>
std::unique_ptr<Kernel> MakeAttention(const OpSpec& spec, const PrepareOptions& options) {
  const bool regular = spec.tokens > 0 && spec.rows % spec.tokens == 0 && spec.row_begin == 0 &&
                       spec.heads > 0 && spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0 &&
                       spec.head_dim > 0;
  if (spec.phase == Phase::kWeightGrad || !regular) return nullptr;
  auto kernel = std::make_unique<Attention<T>>(spec, options);
  if (kernel->ScratchBytes() > options.scratch_limit_bytes) return nullptr;
  return kernel;
}

template std::unique_ptr<Kernel> MakeAttention<float>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeAttention<tensor::BFloat16>(const OpSpec&,
                                                                 const PrepareOptions&);

}  // namespace trireme::kernels::cpu
