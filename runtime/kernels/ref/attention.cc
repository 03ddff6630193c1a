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
    if (spec.heads == 0 || spec.rows == 0) return;
    TRIREME_CHECK(spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0);
    TRIREME_CHECK(spec.row_begin == 0 && spec.rows % spec.tokens == 0);
  }

  void Run(const graph::OpCall& call) override {
    const bool forward = spec_.phase == graph::Phase::kForward;
    if (!forward) StartInputGrad(call);
    if (spec_.heads == 0 || spec_.rows == 0) return;
    Dropout dropout(spec_, call);
    for (int64_t sample = 0; sample < spec_.rows / spec_.tokens; ++sample) {
      for (int64_t head = 0; head < spec_.heads; ++head) {
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

  // dx starts as base, or as zero.
  void StartInputGrad(const graph::OpCall& call) const {
    const T* base = call.In<T>(graph::kBase);
    T* dx = call.Out<T>(graph::kDX);
    if (base == dx && base != nullptr) return;
    const int64_t width = (spec_.heads + 2 * spec_.kv_heads) * spec_.head_dim;
    for (int64_t r = 0; r < spec_.rows; ++r) {
      if (base == nullptr) {
        std::fill_n(dx + r * spec_.x_ld, width, T{0});
      } else {
        std::copy_n(base + r * spec_.x_ld, width, dx + r * spec_.x_ld);
      }
    }
  }

  const T* Row(const T* matrix, int64_t row) const { return matrix + row * spec_.x_ld; }

  double Dot(const T* a, const T* b) const {
    double sum = 0;
    for (int64_t d = 0; d < spec_.head_dim; ++d) sum += static_cast<double>(a[d]) * b[d];
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
      for (int64_t d = 0; d < spec_.head_dim; ++d) sum_[static_cast<size_t>(d)] += kept * v[d];
    }
    T* y = call.Out<T>(graph::kY) + query.row() * spec_.y_ld + query.q_column;
    for (int64_t d = 0; d < spec_.head_dim; ++d) {
      y[d] = static_cast<T>(sum_[static_cast<size_t>(d)] / total);
    }
    call.Out<T>(graph::kStats)[query.row() * spec_.heads + query.head] =
        static_cast<T>(largest + std::log(total));
  }

  void InputGrad(const graph::OpCall& call, const Query& query) {
    const T* x = call.In<T>(graph::kX);
    T* dx = call.Out<T>(graph::kDX);
    const int64_t y_offset = query.row() * spec_.y_ld + query.q_column;
    const T* d_out = call.In<T>(graph::kDY) + y_offset;
    const double delta = Dot(d_out, call.In<T>(graph::kY) + y_offset);
    const double lse = call.In<T>(graph::kStats)[query.row() * spec_.heads + query.head];
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
      T* d_key = dx + key_row + query.k_column;
      T* d_value = dx + key_row + query.v_column;
      for (int64_t d = 0; d < spec_.head_dim; ++d) {
        sum_[static_cast<size_t>(d)] += ds * key[d];
        d_key[d] = static_cast<T>(d_key[d] + ds * q[d]);
        d_value[d] = static_cast<T>(d_value[d] + p * factor * d_out[d]);
      }
    }
    T* d_query = dx + query.row() * spec_.x_ld + query.q_column;
    for (int64_t d = 0; d < spec_.head_dim; ++d) {
      d_query[d] = static_cast<T>(d_query[d] + sum_[static_cast<size_t>(d)]);
    }
  }

  graph::OpSpec spec_;
  double scale_;
  std::vector<double> score_;   // [T], of the query at hand
  std::vector<double> factor_;  // [T], its dropout factors
  std::vector<double> sum_;     // [D]
};

}  // namespace

void RegisterAttention(KernelRegistry& registry) {
  RegisterTypes<Attention>(registry, graph::OpKind::kAttention, graph::Phase::kForward);
  RegisterTypes<Attention>(registry, graph::OpKind::kAttention, graph::Phase::kInputGrad);
}

}  // namespace trireme::kernels::ref
