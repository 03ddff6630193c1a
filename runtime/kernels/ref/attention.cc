// Causal attention, one query at a time, scores in f64. Backward recomputes the probabilities P
// from the saved log-sum-exp; with dropout factors m: dP = m (dO V^T), delta = dO . O = sum_k P dP,
// dS = P (dP - delta).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/kernels/ref/dropout.h"
#include "runtime/kernels/ref/reference_kernels.h"
#include "runtime/kernels/ref/storage.h"

namespace trireme::kernels::ref {
namespace {

// One query of one head: where its row of each packed matrix lies.
struct Query {
  int64_t first_row = 0;  // of its sample
  int64_t token = 0;
  int64_t head = 0;
  int64_t q_column = 0;
  int64_t k_column = 0;
  int64_t v_column = 0;
  int64_t first_element = 0;  // dropout index of key 0

  int64_t row() const { return first_row + token; }
};

template <typename T>
class Attention : public Kernel {
 public:
  explicit Attention(const graph::OpSpec& spec)
      : spec_(spec),
        scale_(1.0 / std::sqrt(static_cast<double>(spec.head_dim))),
        score_(static_cast<size_t>(spec.tokens)),
        factor_(static_cast<size_t>(spec.tokens)),
        sum_(static_cast<size_t>(spec.head_dim)) {
    if (spec.phase == graph::Phase::kInputGrad) {
      d_keys_.resize(static_cast<size_t>(spec.tokens * spec.head_dim));
      d_values_.resize(d_keys_.size());
    }
    if (spec.heads == 0 || spec.rows == 0) return;
    TRIREME_CHECK(spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0);
    TRIREME_CHECK(spec.row_begin == 0 && spec.rows % spec.tokens == 0);
  }

  void Run(const graph::OpCall& call) override {
    if (spec_.heads == 0 || spec_.rows == 0) return CopyBase(call);
    const bool forward = spec_.phase == graph::Phase::kForward;
    const int64_t group_heads = spec_.heads / spec_.kv_heads;
    Dropout dropout(spec_, call);
    for (int64_t sample = 0; sample < spec_.rows / spec_.tokens; ++sample) {
      for (int64_t head = 0; head < spec_.heads; ++head) {
        if (!forward && head % group_heads == 0) StartGroup();
        for (int64_t token = 0; token < spec_.tokens; ++token) {
          const Query query = Locate(call, sample, head, token);
          for (int64_t k = 0; k <= token; ++k) {
            factor_[static_cast<size_t>(k)] = dropout.Factor(query.first_element + k);
          }
          if (forward) {
            Forward(call, query);
          } else {
            InputGrad(call, query);
          }
        }
        if (!forward && head % group_heads == group_heads - 1) {
          StoreGroup(call, Locate(call, sample, head, 0));
        }
      }
    }
  }

 private:
  Query Locate(const graph::OpCall& call, int64_t sample, int64_t head, int64_t token) const {
    const int64_t group = head / (spec_.heads / spec_.kv_heads);
    const int64_t global_row =
        ((call.first_sample + sample) * spec_.global_heads + spec_.head_begin + head) *
            spec_.tokens +
        token;
    return {.first_row = sample * spec_.tokens,
            .token = token,
            .head = head,
            .q_column = head * spec_.head_dim,
            .k_column = (spec_.heads + group) * spec_.head_dim,
            .v_column = (spec_.heads + spec_.kv_heads + group) * spec_.head_dim,
            .first_element = global_row * spec_.tokens};
  }

  // Without heads there are no keys and values that would be read: dx = base, or zero.
  void CopyBase(const graph::OpCall& call) const {
    if (spec_.phase == graph::Phase::kForward) return;
    for (int64_t r = 0; r < spec_.rows; ++r) {
      for (int64_t c = 0; c < 2 * spec_.kv_heads * spec_.head_dim; ++c) {
        StoreGradient(call, r * spec_.x_ld + c, 0);
      }
    }
  }

  void StartGroup() {
    std::fill(d_keys_.begin(), d_keys_.end(), 0.0);
    std::fill(d_values_.begin(), d_values_.end(), 0.0);
  }

  // The gradients of the group's keys and values, whole when its last head is done.
  void StoreGroup(const graph::OpCall& call, const Query& first) const {
    for (int64_t t = 0; t < spec_.tokens; ++t) {
      for (int64_t d = 0; d < spec_.head_dim; ++d) {
        const int64_t row = (first.first_row + t) * spec_.x_ld;
        const auto at = static_cast<size_t>(t * spec_.head_dim + d);
        StoreGradient(call, row + first.k_column + d, d_keys_[at]);
        StoreGradient(call, row + first.v_column + d, d_values_[at]);
      }
    }
  }

  void StoreGradient(const graph::OpCall& call, int64_t at, double gradient) const {
    const T* base = call.In<T>(graph::kBase);
    call.Out<T>(graph::kDX)[at] = Narrow<T>(base == nullptr ? gradient : Wide(base[at]) + gradient);
  }

  const T* Row(const T* matrix, int64_t row) const { return matrix + row * spec_.x_ld; }

  double Dot(const T* a, const T* b) const {
    double sum = 0;
    for (int64_t d = 0; d < spec_.head_dim; ++d) sum += Wide(a[d]) * Wide(b[d]);
    return sum;
  }

  // Scaled scores of keys 0 .. token into score_, and the largest of them.
  double Scores(const T* x, const Query& query) {
    const T* q = Row(x, query.row()) + query.q_column;
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k <= query.token; ++k) {
      const double score = scale_ * Dot(q, Row(x, query.first_row + k) + query.k_column);
      score_[static_cast<size_t>(k)] = score;
      largest = std::max(largest, score);  // a NaN score makes every sum below a NaN
    }
    return largest;
  }

  void Forward(const graph::OpCall& call, const Query& query) {
    const T* x = call.In<T>(graph::kX);
    const double largest = Scores(x, query);
    double total = 0;
    std::fill(sum_.begin(), sum_.end(), 0.0);
    for (int64_t k = 0; k <= query.token; ++k) {
      const double weight = std::exp(score_[static_cast<size_t>(k)] - largest);
      total += weight;
      const double kept = weight * factor_[static_cast<size_t>(k)];
      const T* v = Row(x, query.first_row + k) + query.v_column;
      for (int64_t d = 0; d < spec_.head_dim; ++d) {
        sum_[static_cast<size_t>(d)] += kept * Wide(v[d]);
      }
    }
    T* y = call.Out<T>(graph::kY) + query.row() * spec_.y_ld + query.q_column;
    for (int64_t d = 0; d < spec_.head_dim; ++d) {
      y[d] = Narrow<T>(sum_[static_cast<size_t>(d)] / total);
    }
    call.Out<Accumulator<T>>(graph::kStats)[query.row() * spec_.heads + query.head] =
        static_cast<Accumulator<T>>(largest + std::log(total));
  }

  void InputGrad(const graph::OpCall& call, const Query& query) {
    const T* x = call.In<T>(graph::kX);
    const int64_t y_offset = query.row() * spec_.y_ld + query.q_column;
    const T* d_out = call.In<T>(graph::kDY) + y_offset;
    const double delta = Dot(d_out, call.In<T>(graph::kY) + y_offset);
    const double lse =
        call.In<Accumulator<T>>(graph::kStats)[query.row() * spec_.heads + query.head];
    const T* q = Row(x, query.row()) + query.q_column;
    Scores(x, query);
    std::fill(sum_.begin(), sum_.end(), 0.0);
    for (int64_t k = 0; k <= query.token; ++k) {
      const int64_t key_row = (query.first_row + k) * spec_.x_ld;
      const T* key = x + key_row + query.k_column;
      const double factor = factor_[static_cast<size_t>(k)];
      const double p = std::exp(score_[static_cast<size_t>(k)] - lse);
      const double dp = factor * Dot(d_out, x + key_row + query.v_column);
      const double ds = p * (dp - delta) * scale_;
      double* d_key = d_keys_.data() + k * spec_.head_dim;
      double* d_value = d_values_.data() + k * spec_.head_dim;
      for (int64_t d = 0; d < spec_.head_dim; ++d) {
        sum_[static_cast<size_t>(d)] += ds * Wide(key[d]);
        d_key[d] += ds * Wide(q[d]);
        d_value[d] += p * factor * Wide(d_out[d]);
      }
    }
    const int64_t d_query = query.row() * spec_.x_ld + query.q_column;
    for (int64_t d = 0; d < spec_.head_dim; ++d) {
      StoreGradient(call, d_query + d, sum_[static_cast<size_t>(d)]);
    }
  }

  graph::OpSpec spec_;
  double scale_;
  std::vector<double> score_;              // [T], of the query at hand
  std::vector<double> factor_;             // [T], its dropout factors
  std::vector<double> sum_;                // [D]
  std::vector<double> d_keys_, d_values_;  // [T][D], of the group at hand; backward only
};

}  // namespace

void RegisterAttention(KernelRegistry& registry) {
  RegisterTypes<Attention>(registry, graph::OpKind::kAttention, graph::Phase::kForward);
  RegisterTypes<Attention>(registry, graph::OpKind::kAttention, graph::Phase::kInputGrad);
}

}  // namespace trireme::kernels::ref
