// Attention over the threads: a task is some queries of a head (forward) or some keys of a
// key/value group (backward). Where a backward cuts keys, each task leaves its share of dq and the
// shares are added in order. Cuts depend on shapes alone, so threads do not change the bits, as
// long as the scratch holds the shares and one workspace, which a plan's does (plan::ScratchBytes).
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

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

// Heads, or groups, below which tokens are cut too: a share of dq costs its way through memory.
constexpr int64_t kEnoughTasks = 8;
// Of all shares together, 16 MiB, for which a plan keeps room: longer ones would take the threads'
// workspaces, and their way through memory what the cut gains.
constexpr int64_t kMostShareFloats = int64_t{4} << 20;
// Shorter parts would be lost in what each of them prepares.
constexpr int64_t kLeastPart = 2 * kAttentionCut;

// Where the parts of `tokens` begin, and the end, so that each has as many pairs of a query and a
// key: a query has the keys before it, a key the queries after it.
std::vector<int64_t> CutTokens(int64_t tokens, int64_t parts, bool of_queries) {
  std::vector<int64_t> cuts = {0};
  for (int64_t part = 1; part < parts; ++part) {
    const double share = static_cast<double>(part) / static_cast<double>(parts);
    const double place = of_queries ? std::sqrt(share) : 1 - std::sqrt(1 - share);
    const auto tile =
        static_cast<int64_t>(std::lround(place * static_cast<double>(tokens) / kAttentionCut));
    const int64_t cut = std::max(tile * kAttentionCut, cuts.back() + kAttentionCut);
    if (cut < tokens) cuts.push_back(cut);
  }
  cuts.push_back(tokens);
  return cuts;
}

template <typename T>
int64_t WorkspaceFloats(const AttentionLoops<T>& loops, const OpSpec& spec) {
  return (spec.phase == Phase::kForward ? loops.forward_floats : loops.backward_floats)(
      spec.tokens, spec.head_dim);
}

int64_t RoomFloats(const PrepareOptions& options) {
  const size_t limit = options.scratch_limit_bytes;
  return limit < kAlignment ? 0 : static_cast<int64_t>((limit - kAlignment) / sizeof(float));
}

// That one thread finds room for.
template <typename T>
AttentionLoops<T> FastestLoops(const OpSpec& spec, int64_t room_floats) {
  if constexpr (std::is_same_v<T, tensor::BFloat16>) {
    const auto tiles = AttentionTileLoops();
    if (tiles && WorkspaceFloats(*tiles, spec) <= room_floats) return *tiles;
  }
  return AttentionLoopsOf<T>();
}

template <typename T>
class Attention : public Kernel {
 public:
  // As many threads as have a task and whose workspaces fit the scratch.
  Attention(const OpSpec& spec, const PrepareOptions& options)
      : spec_(spec),
        loops_(FastestLoops<T>(spec, RoomFloats(options))),
        samples_(spec.rows / spec.tokens),
        workspace_floats_(WorkspaceFloats(loops_, spec)) {
    const int64_t room = RoomFloats(options);
    const int64_t heads = samples_ * HeadsOfSample();
    const int64_t wanted = std::min((kEnoughTasks + heads - 1) / std::max<int64_t>(1, heads),
                                    (spec.tokens + kLeastPart - 1) / kLeastPart);
    CutInto(wanted);
    if (share_floats_ > kMostShareFloats || share_floats_ + workspace_floats_ > room) CutInto(1);
    const int64_t fitting = (room - std::min(room, share_floats_)) / workspace_floats_;
    threads_ = static_cast<int>(
        std::max<int64_t>(1, std::min<int64_t>({options.threads, heads * Parts(), fitting})));
  }

  size_t ScratchBytes() const override {
    return static_cast<size_t>(threads_ * workspace_floats_ + share_floats_) * sizeof(float) +
           kAlignment;
  }

  void Run(const OpCall& call) override {
    TRIREME_CHECK(call.scratch.size() >= ScratchBytes());
    const auto address = reinterpret_cast<uintptr_t>(call.scratch.data());
    auto* workspace =
        reinterpret_cast<float*>((address + kAlignment - 1) / kAlignment * kAlignment);
    float* shares = workspace + threads_ * workspace_floats_;
    const DropoutStream stream = MakeDropoutStream(spec_, call);
    const DropoutStream* dropout = HasDropout(spec_, call) ? &stream : nullptr;
    ForTasks(samples_ * HeadsOfSample() * Parts(), [&](int64_t task, int thread) {
      RunTask(call, dropout, task, workspace + thread * workspace_floats_, shares);
    });
    if (share_floats_ == 0) return;
    const int64_t tiles = (spec_.tokens + kAttentionCut - 1) / kAttentionCut;
    ForTasks(samples_ * spec_.heads * tiles, [&](int64_t task, int) {
      AddShares(call, task / tiles, task % tiles * kAttentionCut, shares);
    });
  }

 private:
  bool Forward() const { return spec_.phase == Phase::kForward; }
  // That a task is made of: query heads, or key/value heads with the queries that read them.
  int64_t HeadsOfSample() const { return Forward() ? spec_.heads : spec_.kv_heads; }
  int64_t HeadsOfGroup() const { return spec_.heads / spec_.kv_heads; }
  int64_t Parts() const { return static_cast<int64_t>(cuts_.size()) - 1; }
  int64_t ShareOfPart() const { return spec_.tokens * AttentionWidth(spec_.head_dim); }

  void CutInto(int64_t parts) {
    cuts_ = CutTokens(spec_.tokens, parts, Forward());
    const bool shares = !Forward() && Parts() > 1;
    share_floats_ = shares ? samples_ * spec_.heads * Parts() * ShareOfPart() : 0;
  }

  // run(task, thread)
  template <class Body>
  void ForTasks(int64_t tasks, const Body& run) const {
    if (threads_ == 1) {
      for (int64_t task = 0; task < tasks; ++task) run(task, 0);
      return;
    }
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; ++task) run(task, omp_get_thread_num());
  }

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
    if (Forward()) {
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

  void RunTask(const OpCall& call, const DropoutStream* dropout, int64_t task, float* workspace,
               float* shares) const {
    const int64_t part = task % Parts();
    const int64_t sample = task / Parts() / HeadsOfSample();
    const int64_t group = task / Parts() % HeadsOfSample();
    const auto head = [&](int64_t index) {
      AttentionHead<T> h = HeadOf(call, dropout, sample, index);
      h.begin = cuts_[static_cast<size_t>(part)];
      h.end = cuts_[static_cast<size_t>(part) + 1];
      if (share_floats_ > 0)
        h.dq_part = SharesOf(sample * spec_.heads + index, shares) + part * ShareOfPart();
      return h;
    };
    if (Forward()) {
      loops_.forward(head(group), workspace);
      return;
    }
    const AttentionHead<T> first = head(group * HeadsOfGroup());
    loops_.backward_begin(first, workspace);
    for (int64_t i = 0; i < HeadsOfGroup(); ++i) {
      loops_.backward_add(head(group * HeadsOfGroup() + i), workspace);
    }
    T* dk = call.Out<T>(graph::kDX) + (first.k - call.In<T>(graph::kX));
    loops_.backward_end(first, dk, dk + spec_.kv_heads * spec_.head_dim, workspace);
  }

  // head: counted over all samples.
  float* SharesOf(int64_t head, float* shares) const {
    return shares + head * Parts() * ShareOfPart();
  }

  void AddShares(const OpCall& call, int64_t head, int64_t query, float* shares) const {
    AttentionHead<T> h = HeadOf(call, nullptr, head / spec_.heads, head % spec_.heads);
    h.begin = query;
    h.end = std::min(spec_.tokens, query + kAttentionCut);
    loops_.backward_sum(h, {SharesOf(head, shares), ShareOfPart(), cuts_.data(), Parts()});
  }

  OpSpec spec_;
  AttentionLoops<T> loops_;
  int64_t samples_;
  int64_t workspace_floats_;
  std::vector<int64_t> cuts_;  // where the parts of the tokens begin, and the end
  int64_t share_floats_ = 0;   // shares of dq, [samples][heads][part][tokens][width]
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
