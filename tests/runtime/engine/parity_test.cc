// Every layout against one rank: per parameter, gradients of the first step and weights after three
// (max |difference| over the global norm; docs/architecture.md, proof mode).
#include <catch2/catch.hpp>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/one_processor.h"
#include "tests/sanitizer.h"
#include "tests/streams.h"

namespace trireme::engine {

namespace {

// Whether activations of a product wait long enough for their backward to go out: all of them under
// gpipe with four micro-batches or more, those of the first stages of a deep pipeline.
bool KeepsLong(const Layout& layout) {
  if (layout.micro_batch > 1 || layout.data > 2) return false;
  return layout.schedule == "gpipe" || layout.pipeline > 3;
}

// Of one schedule and ZeRO stage: ways to recompute, places of the state and of activations.
constexpr size_t kCells = 3 * 3 * 3;
constexpr size_t kAllCells = 4 * 4 * kCells;

// Draws one of these for each product, all of them for one schedule and ZeRO stage before any comes
// again: interleaved has hardly more products than there are.
class CellDraw {
 public:
  // A number whose remainder by kCells is the cell, else as `hash`.
  size_t Next(const Layout& layout, size_t hash) {
    std::set<size_t>& taken = taken_[{layout.schedule, layout.zero}];
    if (taken.size() == kCells) taken.clear();
    size_t cell = hash % kCells;
    while (!taken.insert(cell).second) cell = (cell + 1) % kCells;
    return hash - hash % kCells + cell;
  }

 private:
  std::map<std::pair<std::string, int64_t>, std::set<size_t>> taken_;
};

std::vector<Layout> Products(int min_ranks, int max_ranks) {
  std::vector<Layout> all;
  for (int64_t pipeline = 1; pipeline <= max_ranks; ++pipeline) {
    for (int64_t tensor = 1; tensor * pipeline <= max_ranks; ++tensor) {
      for (int64_t data = 1; data * tensor * pipeline <= max_ranks; ++data) {
        if (data * tensor * pipeline < min_ranks) continue;
        for (bool sequence : {false, true}) {
          for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"}) {
            for (int64_t zero : {0, 1, 2, 3}) {
              for (int64_t micro_batch : {1, 3, 8}) {
                all.push_back({data, tensor, pipeline, sequence, schedule, zero});
                all.back().micro_batch = micro_batch;
              }
            }
          }
        }
      }
    }
  }
  return all;
}

// The fields for which a user is refused this product; empty: it runs.
std::string RefusedFields(v1::JobSpec job) {
  job.mutable_data()->add_text_files("text.txt");
  std::string fields;
  for (const spec::Fault& fault : spec::Validate(job)) {
    absl::StrAppend(&fields, fields.empty() ? "" : ", ", fault.path);
  }
  return fields;
}

// Whether this product has no meaning, found without the rules of the spec: both must agree, lest a
// new rule refuse what is said to be proven here.
bool HasNoMeaning(const Layout& layout, const TinyJobOptions& options) {
  const int64_t groups = options.family == "gpt2" ? 9 : 5;
  const bool interleaved = layout.schedule == "interleaved";
  const bool too_few_rows = layout.micro_batch * 5 < layout.tensor;
  return (layout.sequence_parallel && (layout.tensor == 1 || too_few_rows)) ||
         layout.tensor > groups || layout.data > 8 || (interleaved && layout.pipeline == 1) ||
         layout.pipeline * (interleaved ? 2 : 1) > options.layers;
}

// The product of this index with what is drawn beside.
Layout WithDrawn(Layout layout, size_t index, CellDraw& cells) {
  const char* recompute[] = {"none", "selective", "full"};
  const int64_t loss_tile[] = {4, 0, 7, 1};  // of 5, 15 or 40 rows
  const char* places[] = {"none", "host", "file"};
  const size_t drawn = cells.Next(layout, index * 40503u >> 9);
  layout.recompute = recompute[drawn % 3];
  layout.offload_state = places[drawn / 3 % 3];
  layout.offload_activations = places[drawn / 9 % 3];
  layout.loss_tile = loss_tile[drawn / 4 % 4];
  // They are few: all but one in nine of them ask for it.
  if (KeepsLong(layout) && drawn / 3 % 9 != 0) {
    layout.offload_activations = places[1 + drawn / kCells % 2];
  }
  return layout;
}

std::string CellOf(const Layout& layout) {
  return absl::StrCat(layout.schedule, " ", layout.zero, " ", layout.recompute, " ",
                      layout.offload_state, " ", layout.offload_activations);
}

// What one rank does in f64, from weights that the layouts' dtype holds exactly.
struct Reference {
  Tensors initial;
  LayoutResult result;
};

Reference RunReference(TinyJobOptions options, const data::Dataset& dataset) {
  const bool exact = options.dtype == "f64";
  const bool rounds = options.dtype == "bf16";
  options.dtype = "f64";
  const v1::JobSpec job = JobFor({.micro_batch = 8}, options);
  Reference reference;
  if (!exact) {
    const auto start = RunLayout(job, 1, dataset, {.steps = 0});
    REQUIRE(start.ok());
    reference.initial = rounds ? RoundedToBf16(start->weights) : start->weights;
    for (auto& [name, values] : reference.initial) {
      for (double& value : values) value = static_cast<float>(value);
    }
  }
  const auto result = RunLayout(
      job, 1, dataset,
      {.evaluate = true, .initial = reference.initial.empty() ? nullptr : &reference.initial});
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  reference.result = *result;
  return reference;
}

// Empty if the layout agrees with the reference; else what differs. `moved`: whether a step has
// moved activations.
std::string Compare(const Layout& layout, const TinyJobOptions& options, const Reference& reference,
                    const data::Dataset& dataset, uint32_t snapshot_slots, bool& moved) {
  const v1::JobSpec job = JobFor(layout, options);
  const bool bf16 = options.dtype == "bf16";
  const auto result = RunLayout(job, layout.ranks(), dataset,
                                {.evaluate = true,
                                 .initial = bf16 ? &reference.initial : nullptr,
                                 .snapshot_slots = snapshot_slots});
  if (!result.ok()) return result.status().ToString();
  moved = result->activations_moved > 0;
  if (bf16) {
    Bf16Gates gates = GatesOfBf16(options.layers, layout.tensor);
    if (options.gradient_transfer == "bf16") gates.of_element = 5 * kTransferDeviation;
    return FaultsOfBf16(*result, reference.result, reference.initial, gates);
  }
  if (options.gradient_transfer == "bf16") {
    return FaultsOfTransfer(*result, reference.result, reference.initial);
  }
  return FaultsOf(*result, reference.result, options.dtype == "f64" ? 1e-12 : 1e-6);
}

// A third of the products that sum in f32 let the parts travel as bf16.
TinyJobOptions DrawTransfer(TinyJobOptions options, size_t index) {
  const bool drawn = (index * 40503u >> 9) / 27 % 3 == 1;
  if (drawn && options.dtype != "f64") options.gradient_transfer = "bf16";
  return options;
}

// Half of the products whose state is in the arena have it in snapshot slots instead.
uint32_t DrawSlots(const Layout& layout, size_t index) {
  const size_t drawn = (index * 40503u >> 9) / 81;
  return layout.offload_state == "none" && drawn % 2 == 0 ? 2 + drawn / 2 % 2 : 0;
}

// Which products run: one of the `stride` classes that are all of them together. The hash spreads
// each class over all axes.
struct Share {
  size_t stride = 1, residue = 0;
  bool what_llama_lacks = false;  // and all that has no meaning in llama

  bool Has(const Layout& layout, size_t index) const {
    return (index * 2654435761u >> 7) % stride == residue ||
           (what_llama_lacks && HasNoMeaning(layout, {.family = "llama"}));
  }
};

// In f64 each product runs in one family at least.
constexpr Share kHalfOfGpt2{.stride = 2, .residue = 0, .what_llama_lacks = true};
constexpr Share kHalfOfLlama{.stride = 2, .residue = 1};

// Samples in f32 run on all processors, where ranks meet in more ways.
void RunProducts(const std::vector<Layout>& products, const TinyJobOptions& of_all, Share share) {
  std::optional<OnOneProcessor> one;
  if (share.stride <= 8 || of_all.dtype != "f32") one.emplace();
  const auto dataset = MakeRandomDataset(29, 5);
  const Reference reference = RunReference(of_all, *dataset);
  // A sample on asynchronous streams is a quarter of that in line: each task opens and shuts
  // memory.
  if (share.stride > 1 && tests::asynchronous_streams) share.stride *= 4;
  if (tests::kSanitizer) share.stride *= tests::kThreadSanitizer ? 4 : 2;
  std::map<std::string, int> refused;
  int run = 0, failed = 0, left = 0, transfers = 0, asked = 0, moving = 0, moving_recomputed = 0,
      in_slots = 0;
  CellDraw draw;
  std::set<std::string> cells;
  for (size_t index = 0; index < products.size(); ++index) {
    const TinyJobOptions options = DrawTransfer(of_all, index);
    const bool no_meaning = HasNoMeaning(products[index], options);
    const Layout layout = no_meaning ? products[index] : WithDrawn(products[index], index, draw);
    const std::string fields = RefusedFields(JobFor(layout, options));
    if (fields.empty() == no_meaning) {
      FAIL_CHECK(options.family << " " << layout.Name() << ": the spec refuses it for \"" << fields
                                << "\", the suite thinks otherwise");
    }
    if (!fields.empty()) {
      ++refused[fields];
      continue;
    }
    if (!share.Has(products[index], index)) {
      ++left;
      continue;
    }
    ++run;
    cells.insert(CellOf(layout));
    transfers += layout.data > 1 && options.gradient_transfer == "bf16" ? 1 : 0;
    bool moved = false;
    const uint32_t slots = DrawSlots(layout, index);
    in_slots += slots > 0 ? 1 : 0;
    const std::string text = Compare(layout, options, reference, *dataset, slots, moved);
    asked += layout.offload_activations != "none" ? 1 : 0;
    moving += moved ? 1 : 0;
    moving_recomputed += moved && layout.recompute != "none" ? 1 : 0;
    if (text.empty()) continue;
    ++failed;
    if (failed <= 5)
      FAIL_CHECK(options.family << " " << options.dtype << " " << layout.Name() << " gradients as "
                                << options.gradient_transfer << ", " << slots
                                << " snapshot slots:" << text);
  }
  std::cout << "parity " << of_all.family << " " << of_all.dtype << ": generated "
            << products.size() << ", run " << run << " (" << transfers
            << " with gradients as bf16, " << in_slots
            << " in snapshot slots; activations moved by " << moving << " of " << asked
            << " that offload them, in " << moving_recomputed << " beside recomputing; "
            << cells.size() << " of " << kAllCells << " cells), failed " << failed
            << ", left to the full suite " << left;
  for (const auto& [fields, count] : refused) {
    std::cout << ", refused " << count << " (" << fields << ")";
  }
  std::cout << std::endl;
  CHECK(failed == 0);
  CHECK(run > 0);
  CHECK(in_slots > 0);
  CHECK((transfers > 0) == (of_all.dtype != "f64"));
  // What offload asks for without a backward far enough behind moves nothing, and shows nothing.
  CHECK(moving_recomputed > 0);
  if (run > 40) CHECK(5 * moving > asked);
  if (share.stride == 1) CHECK(cells.size() == kAllCells);
}

}  // namespace

TEST_CASE("parity: gpt2 in f64: sample of the products up to 8 ranks") {
  RunProducts(Products(1, 8), {.family = "gpt2", .dtype = "f64", .dropout = 0.1}, {.stride = 24});
}

TEST_CASE("parity: llama in f64: sample of the products up to 8 ranks") {
  RunProducts(Products(1, 8), {.family = "llama", .dtype = "f64"}, {.stride = 24, .residue = 1});
}

TEST_CASE("parity: gpt2 in f32: sample of the products up to 8 ranks") {
  RunProducts(Products(1, 8), {.family = "gpt2", .dtype = "f32"}, {.stride = 32});
}

TEST_CASE("parity: llama in f32: sample of the products up to 8 ranks") {
  RunProducts(Products(1, 8), {.family = "llama", .dtype = "f32"}, {.stride = 32});
}

TEST_CASE("parity: gpt2 in bf16: sample of the products up to 8 ranks") {
  RunProducts(Products(1, 8), {.family = "gpt2", .dtype = "bf16"}, {.stride = 32});
}

TEST_CASE("parity: llama in bf16: sample of the products up to 8 ranks") {
  RunProducts(Products(1, 8), {.family = "llama", .dtype = "bf16"}, {.stride = 32});
}

// Wrong by a sixth, and an update of which a fifth is lacking, of one tensor at a time.
TEST_CASE("parity: the gates of bf16 see any tensor that is wrong") {
  const auto dataset = MakeRandomDataset(29, 5);
  const Layout layout{.data = 2, .zero = 3};
  for (const char* family : {"gpt2", "llama"}) {
    const TinyJobOptions options{.family = family, .dtype = "bf16"};
    const Reference reference = RunReference(options, *dataset);
    const auto run = RunLayout(JobFor(layout, options), layout.ranks(), *dataset,
                               {.evaluate = true, .initial = &reference.initial});
    REQUIRE(run.ok());
    const auto faults = [&](const LayoutResult& result) {
      return FaultsOfBf16(result, reference.result, reference.initial,
                          GatesOfBf16(options.layers, layout.tensor));
    };
    CHECK(faults(*run) == "");
    for (const auto& [name, values] : run->gradients) {
      LayoutResult spoilt = *run;
      for (double& value : spoilt.gradients[name]) value *= 5.0 / 6;
      CHECK_THAT(faults(spoilt), Catch::Contains(" gradient " + name));
    }
    for (const auto& [name, values] : run->weights) {
      LayoutResult spoilt = *run;
      const std::vector<double>& before = reference.initial.at(name);
      for (size_t i = 0; i < before.size(); ++i) {
        spoilt.weights[name][i] -= (values[i] - before[i]) / 5;
      }
      CHECK_THAT(faults(spoilt), Catch::Contains(" weight " + name));
    }
  }
}

// A norm in which both stages' copies of the tied embedding count: of all that is compared it is
// the first step's only fault.
TEST_CASE("parity: a wrong norm is seen in every dtype and of every transfer") {
  const auto dataset = MakeRandomDataset(29, 5);
  const Layout layout{.data = 2, .pipeline = 2};
  const auto faults = [&](TinyJobOptions options, Mutation mutation) {
    TinyJobOptions of_reference = options;
    of_reference.gradient_transfer = "f32";
    const Reference reference = RunReference(of_reference, *dataset);
    const Tensors* initial = reference.initial.empty() ? nullptr : &reference.initial;
    v1::JobSpec job = JobFor(layout, options);
    job.mutable_runtime()->set_replica_check_steps(0);
    const auto run = RunLayout(job, layout.ranks(), *dataset,
                               {.steps = 1, .initial = initial, .mutation = mutation});
    REQUIRE(run.ok());
    LayoutResult expected = reference.result;
    expected.weights = run->weights;  // of three steps
    expected.validation_loss = 0;
    if (options.dtype == "bf16") {
      return FaultsOfBf16(*run, expected, reference.initial,
                          GatesOfBf16(options.layers, layout.tensor));
    }
    if (options.gradient_transfer == "bf16") {
      return FaultsOfTransfer(*run, expected, reference.initial);
    }
    return FaultsOf(*run, expected, options.dtype == "f64" ? 1e-12 : 1e-6);
  };
  for (const auto& [dtype, transfer] : {std::pair("f64", "f32"), std::pair("f32", "f32"),
                                        std::pair("f32", "bf16"), std::pair("bf16", "f32")}) {
    const TinyJobOptions options{.dtype = dtype, .gradient_transfer = transfer};
    INFO(dtype << " gradients as " << transfer);
    CHECK(faults(options, Mutation::kCount) == "");
    CHECK_THAT(faults(options, Mutation::kTiedCopyCounted), Catch::StartsWith(" norm of step 0: "));
  }
}

TEST_CASE("parity: in bf16 with dropout what is made again is the same to the bit") {
  const auto dataset = MakeRandomDataset(29, 5);
  const TinyJobOptions options{.dtype = "bf16", .layers = 2, .dropout = 0.2};
  Layout layout{.data = 2, .tensor = 2, .sequence_parallel = true, .zero = 3};
  const auto kept = RunLayout(JobFor(layout, options), layout.ranks(), *dataset);
  REQUIRE(kept.ok());
  for (const char* recompute : {"selective", "full"}) {
    INFO(recompute);
    layout.recompute = recompute;
    const auto again = RunLayout(JobFor(layout, options), layout.ranks(), *dataset);
    REQUIRE(again.ok());
    CHECK(UnlikeIn(*again, *kept) == "");
    const auto other = RunLayout(JobFor(layout, options), layout.ranks(), *dataset,
                                 {.mutation = Mutation::kRecomputedDropout});
    REQUIRE(other.ok());
    CHECK(UnlikeIn(*other, *kept) == "losses, norms, weights, gradients");
  }
}

TEST_CASE("parity: gpt2 in f64: half of the products up to 8 ranks", "[parity]") {
  RunProducts(Products(1, 8), {.family = "gpt2", .dtype = "f64", .dropout = 0.1}, kHalfOfGpt2);
}

TEST_CASE("parity: llama in f64: half of the products up to 8 ranks", "[parity]") {
  RunProducts(Products(1, 8), {.family = "llama", .dtype = "f64"}, kHalfOfLlama);
}

TEST_CASE("parity: the halves of both families are all products, in all cells") {
  const std::vector<Layout> products = Products(1, 8);
  const TinyJobOptions gpt2{.family = "gpt2"}, llama{.family = "llama"};
  CellDraw of_gpt2, of_llama;
  std::set<std::string> cells;
  int by_gpt2 = 0, by_llama = 0;
  for (size_t index = 0; index < products.size(); ++index) {
    const Layout& product = products[index];
    const bool in_gpt2 = !HasNoMeaning(product, gpt2), in_llama = !HasNoMeaning(product, llama);
    const bool gpt2_runs = in_gpt2 && kHalfOfGpt2.Has(product, index);
    const bool llama_runs = in_llama && kHalfOfLlama.Has(product, index);
    INFO(product.Name());
    CHECK((gpt2_runs || llama_runs) == (in_gpt2 || in_llama));
    CHECK_FALSE((gpt2_runs && llama_runs));
    if (in_gpt2) {
      const std::string cell = CellOf(WithDrawn(product, index, of_gpt2));
      if (gpt2_runs) cells.insert(cell);
    }
    if (in_llama) {
      const std::string cell = CellOf(WithDrawn(product, index, of_llama));
      if (llama_runs) cells.insert(cell);
    }
    by_gpt2 += gpt2_runs ? 1 : 0;
    by_llama += llama_runs ? 1 : 0;
  }
  std::cout << "parity: halves of " << by_gpt2 << " products in gpt2 and " << by_llama
            << " in llama, in " << cells.size() << " of " << kAllCells << " cells" << std::endl;
  CHECK(cells.size() == kAllCells);
}

TEST_CASE("parity: gpt2 in f64: all products up to 8 ranks", "[slow][products]") {
  RunProducts(Products(1, 8), {.family = "gpt2", .dtype = "f64", .dropout = 0.1}, {.stride = 1});
}

TEST_CASE("parity: llama in f64: all products up to 8 ranks", "[slow][products]") {
  RunProducts(Products(1, 8), {.family = "llama", .dtype = "f64"}, {.stride = 1});
}

TEST_CASE("parity: gpt2 in f32: an eighth of the products up to 8 ranks", "[parity]") {
  RunProducts(Products(1, 8), {.family = "gpt2", .dtype = "f32"}, {.stride = 8});
}

TEST_CASE("parity: gpt2 in f32: all products up to 8 ranks", "[slow][products]") {
  RunProducts(Products(1, 8), {.family = "gpt2", .dtype = "f32"}, {.stride = 1});
}

TEST_CASE("parity: llama in f32: an eighth of the products up to 8 ranks", "[parity]") {
  RunProducts(Products(1, 8), {.family = "llama", .dtype = "f32"}, {.stride = 8});
}

TEST_CASE("parity: llama in f32: all products up to 8 ranks", "[slow][products]") {
  RunProducts(Products(1, 8), {.family = "llama", .dtype = "f32"}, {.stride = 1});
}

TEST_CASE("parity: products of 9 to 16 ranks with eight layers", "[slow][products]") {
  RunProducts(Products(9, 16), {.family = "gpt2", .dtype = "f64", .layers = 8}, {.stride = 8});
  RunProducts(Products(9, 16), {.family = "llama", .dtype = "f64", .layers = 8}, {.stride = 8});
}

TEST_CASE("parity: products of 9 to 16 ranks with eight layers, in f32 and bf16",
          "[slow][products]") {
  for (const char* dtype : {"f32", "bf16"}) {
    RunProducts(Products(9, 16), {.family = "gpt2", .dtype = dtype, .layers = 8}, {.stride = 24});
    RunProducts(Products(9, 16), {.family = "llama", .dtype = dtype, .layers = 8}, {.stride = 24});
  }
}

TEST_CASE("parity: gpt2 in bf16: an eighth of the products up to 8 ranks", "[parity]") {
  RunProducts(Products(1, 8), {.family = "gpt2", .dtype = "bf16"}, {.stride = 8});
}

TEST_CASE("parity: gpt2 in bf16: all products up to 8 ranks", "[slow][products]") {
  RunProducts(Products(1, 8), {.family = "gpt2", .dtype = "bf16"}, {.stride = 1});
}

TEST_CASE("parity: llama in bf16: an eighth of the products up to 8 ranks", "[parity]") {
  RunProducts(Products(1, 8), {.family = "llama", .dtype = "bf16"}, {.stride = 8});
}

TEST_CASE("parity: llama in bf16: all products up to 8 ranks", "[slow][products]") {
  RunProducts(Products(1, 8), {.family = "llama", .dtype = "bf16"}, {.stride = 1});
}

}  // namespace trireme::engine
