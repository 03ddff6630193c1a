// Dropout, evaluation and generation against plain_model.h, which shares nothing with the engine: a
// fault that every layout has alike, as a mask without the step or a context cut at the wrong end,
// shows here and in no comparison of layouts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/plain_model.h"

namespace trireme::engine {

namespace {

constexpr int64_t kPlainTokens = 5;
constexpr int64_t kPlainBatch = 8;
// Of f64 sums of some thousand terms in another order: rounding alone is below 1e-13.
constexpr double kPlainRounding = 1e-12;

std::vector<Layout> ReferenceLayouts() {
  return {{.micro_batch = 8},
          {.data = 2, .zero = 1},
          {.tensor = 3, .sequence_parallel = true, .micro_batch = 3},
          {.data = 2, .tensor = 2, .pipeline = 2, .schedule = "zb-h1", .micro_batch = 1}};
}

// The first batch again in every step.
class OneBatch final : public data::Dataset {
 public:
  explicit OneBatch(const data::Dataset& inner) : inner_(inner) {}
  const data::Tokenizer& tokenizer() const override { return inner_.tokenizer(); }
  int64_t samples(data::Split split) const override { return inner_.samples(split); }
  int64_t sequence_length() const override { return inner_.sequence_length(); }
  int64_t tokens(data::Split split) const override { return inner_.tokens(split); }
  void Read(data::Split split, int64_t begin, std::span<int32_t> out) const override {
    inner_.Read(split, begin, out);
  }
  void Fill(data::Split split, int64_t sample, std::span<int32_t> tokens,
            std::span<int32_t> targets) const override {
    inner_.Fill(split, split == data::Split::kTrain ? sample % kPlainBatch : sample, tokens,
                targets);
  }

 private:
  const data::Dataset& inner_;
};

double PlainLossOf(const PlainModel& model, const data::Dataset& dataset, data::Split split,
                   int64_t samples, PlainStep* step) {
  PlainModel::Loss all;
  for (int64_t sample = 0; sample < samples; ++sample) {
    std::vector<int32_t> tokens(kPlainTokens), targets(kPlainTokens);
    dataset.Fill(split, sample, tokens, targets);
    if (step != nullptr) step->sample = sample;
    const PlainModel::Loss one = model.LossOf(tokens, targets, step);
    all.sum += one.sum;
    all.counted += one.counted;
  }
  return all.sum / static_cast<double>(all.counted);
}

LayoutResult RunPlainLayout(const v1::JobSpec& job, const Layout& layout,
                            const data::Dataset& dataset, const LayoutRunOptions& options) {
  const auto result = RunLayout(job, layout.ranks(), dataset, options);
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return *result;
}

// As GenerationSpec says: softmax at a temperature over the k likeliest, equals in the order of
// their ids, drawn by one number of 53 bits of the stream "generate".
int32_t PlainDrawn(const std::vector<double>& logits, double temperature, size_t top_k,
                   uint64_t seed, uint64_t index) {
  std::vector<size_t> ids(logits.size());
  for (size_t id = 0; id < ids.size(); ++id) ids[id] = id;
  std::sort(ids.begin(), ids.end(), [&](size_t a, size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  if (temperature == 0) return static_cast<int32_t>(ids[0]);
  if (top_k > 0) ids.resize(std::min(top_k, ids.size()));
  std::vector<double> shares;
  double sum = 0;
  for (const size_t id : ids) sum += std::exp(logits[id] / temperature);
  for (const size_t id : ids) shares.push_back(std::exp(logits[id] / temperature) / sum);
  const uint64_t high = PlainUniform32(seed, "generate", 0, 2 * index);
  const uint64_t low = PlainUniform32(seed, "generate", 0, 2 * index + 1);
  const double number = static_cast<double>((high * 4294967296U + low) / 2048) / 9007199254740992.0;
  double below = 0;
  for (size_t rank = 0; rank < ids.size(); ++rank) {
    below += shares[rank];
    if (number < below) return static_cast<int32_t>(ids[rank]);
  }
  return static_cast<int32_t>(ids.back());
}

// What Draw of layout_run.cc asks for, by plain loops.
std::vector<int32_t> PlainDraw(const PlainModel& model, int count) {
  std::vector<int32_t> tokens = {2};
  for (int index = 0; index < count; ++index) {
    const size_t length = std::min<size_t>(tokens.size(), kPlainTokens);
    const Matrix logits = model.Logits(std::span(tokens).last(length));
    tokens.push_back(PlainDrawn(logits.back(), index < count / 2 ? 0.9 : 0.0,
                                index % 2 == 0 ? 0 : 9, 5, tokens.size()));
  }
  return tokens;
}

}  // namespace

// The vectors of Random123's kat_vectors for philox4x32 10.
TEST_CASE("plain reference: its Philox gives the published numbers") {
  CHECK(PlainPhilox({0, 0, 0, 0}, {0, 0}) ==
        std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(PlainPhilox({ones, ones, ones, ones}, {ones, ones}) ==
        std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(PlainPhilox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// Weights that never change and one batch: from step to step only the masks differ.
TEST_CASE("plain reference: dropout masks of each step are those of its own Philox") {
  const auto all = MakeRandomDataset(29, kPlainTokens);
  const OneBatch dataset(*all);
  for (const Layout& layout : ReferenceLayouts()) {
    INFO(layout.Name());
    v1::JobSpec job = JobFor(layout, {.layers = 4, .dropout = 0.2});
    job.mutable_optimizer()->set_learning_rate(0);
    job.mutable_optimizer()->set_min_learning_rate(0);
    const LayoutResult result = RunPlainLayout(job, layout, dataset, {.steps = 4});
    const PlainModel model(job.model().config(), result.weights);
    for (uint64_t step = 0; step < 4; ++step) {
      PlainStep masks{.seed = job.seed(), .step = step};
      const double loss = PlainLossOf(model, dataset, data::Split::kTrain, kPlainBatch, &masks);
      INFO("step " << step);
      CHECK(result.losses[step] == Approx(loss).epsilon(kPlainRounding).margin(0));
      // A step more or less is another loss, and far from it.
      for (uint64_t other = 0; other < step; ++other) {
        CHECK(std::abs(result.losses[other] - loss) > 1e-4);
      }
    }
  }
}

TEST_CASE("plain reference: the validation loss is that of plain loops, without dropout") {
  const auto dataset = MakeRandomDataset(29, kPlainTokens);
  const int64_t samples = dataset->samples(data::Split::kValidation);
  for (const TinyJobOptions& options :
       {TinyJobOptions{.dropout = 0.2}, TinyJobOptions{.tie = false, .bias = false},
        TinyJobOptions{.family = "llama"}}) {
    for (const Layout& layout : ReferenceLayouts()) {
      INFO(options.family << " " << layout.Name());
      const v1::JobSpec job = JobFor(layout, options);
      const LayoutResult result = RunPlainLayout(job, layout, *dataset, {.evaluate = true});
      const PlainModel model(job.model().config(), result.weights);
      const double loss = PlainLossOf(model, *dataset, data::Split::kValidation, samples, nullptr);
      CHECK(result.validation_loss == Approx(loss).epsilon(kPlainRounding).margin(0));
    }
  }
}

// None of them what a job has that says nothing: a number that is wired in somewhere is no other
// loss with those.
TEST_CASE("plain reference: rotations, norms and each dropout are by the model's own numbers") {
  const auto dataset = MakeRandomDataset(29, kPlainTokens);
  for (const char* family : {"gpt2", "llama"}) {
    for (const char* kernels : {"reference", "cpu"}) {
      const bool fast = kernels == std::string("cpu");
      INFO(family << ", kernels: " << kernels);
      v1::JobSpec job = JobFor({.micro_batch = 8},
                               {.family = family, .dtype = fast ? "f32" : "f64", .dropout = 0.1});
      v1::ModelConfig& config = *job.mutable_model()->mutable_config();
      config.set_norm_epsilon(0.03);
      config.set_rope_theta(50);
      if (config.attn_pdrop() > 0) {
        config.set_embd_pdrop(0.3);
        config.set_attn_pdrop(0.15);
        config.set_resid_pdrop(0.25);
      }
      job.mutable_optimizer()->set_learning_rate(0);
      job.mutable_optimizer()->set_min_learning_rate(0);
      const LayoutResult result = RunPlainLayout(job, {}, *dataset, {.steps = 1});
      const PlainModel model(config, result.weights);
      PlainStep masks{.seed = job.seed()};
      const double loss = PlainLossOf(model, *dataset, data::Split::kTrain, kPlainBatch, &masks);
      CHECK(result.losses[0] == Approx(loss).epsilon(fast ? 1e-5 : kPlainRounding).margin(0));
    }
  }
}

TEST_CASE("plain reference: tokens drawn beyond the sequence length are those of plain loops") {
  const auto dataset = MakeRandomDataset(29, kPlainTokens);
  constexpr int kDrawn = 4 * kPlainTokens;  // half of them greedily, with contexts of up to 20
  for (const TinyJobOptions& options :
       {TinyJobOptions{.dropout = 0.2}, TinyJobOptions{.family = "llama"}}) {
    for (const Layout& layout : ReferenceLayouts()) {
      INFO(options.family << " " << layout.Name());
      const v1::JobSpec job = JobFor(layout, options);
      const LayoutResult result = RunPlainLayout(job, layout, *dataset, {.draw = kDrawn});
      const PlainModel model(job.model().config(), result.weights);
      CHECK(absl::StrJoin(result.drawn, " ") == absl::StrJoin(PlainDraw(model, kDrawn), " "));
    }
  }
}

}  // namespace trireme::engine
