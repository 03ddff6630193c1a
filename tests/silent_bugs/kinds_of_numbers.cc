// Sums that are left out or taken twice, scales and norms.
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "runtime/base/check.h"
#include "runtime/graph/op_spec.h"
#include "tests/silent_bugs/kinds.h"
#include "tests/silent_bugs/plan_changes.h"

namespace trireme::silent_bugs {

using engine::Mutation;

namespace {

bool IsTied(const std::string& name) { return name == "wte.weight"; }
// What each rank of a tensor group sums over its own rows alone.
bool IsRowSummed(const std::string& name) {
  return absl::StrContains(name, "ln_") || absl::EndsWith(name, "c_proj.bias") ||
         name == "wpe.weight";
}
// Beyond a quarter of bucket_bytes, in elements.
bool IsLarge(const std::string& name) {
  const bool attention = absl::StrContains(name, ".attn.c_") && absl::EndsWith(name, ".weight");
  return IsTied(name) || attention;
}

// Adds the bias once more for each tensor rank but the first, behind the sum over them.
class BiasOfEachRank : public kernels::Kernel {
 public:
  BiasOfEachRank(std::unique_ptr<kernels::Kernel> sound, const graph::OpSpec& spec, int64_t more)
      : sound_(std::move(sound)), spec_(spec), more_(more) {}
  void Run(const graph::OpCall& call) override {
    sound_->Run(call);
    const auto* bias = call.In<double>(graph::kB);
    if (bias == nullptr) return;
    auto* y = call.Out<double>(graph::kY);
    for (int64_t row = 0; row < spec_.rows; ++row) {
      for (int64_t column = 0; column < spec_.cols; ++column) {
        y[row * spec_.y_ld + column] += static_cast<double>(more_) * bias[column];
      }
    }
  }

 private:
  std::unique_ptr<kernels::Kernel> sound_;
  graph::OpSpec spec_;
  int64_t more_;
};

void AddBiasOfEachRank(kernels::KernelRegistry& registry, const v1::JobSpec& job) {
  const int64_t more = job.parallelism().tensor_parallel_size() - 1;
  const kernels::KernelRegistry& sound = engine::KernelsOf(job);
  registry.Register(
      graph::OpKind::kResidualAdd, graph::Phase::kForward, tensor::DType::kF64, "planted",
      [more, &sound](const graph::OpSpec& spec,
                     const kernels::PrepareOptions& with) -> std::unique_ptr<kernels::Kernel> {
        auto kernel = sound.Prepare(spec, with);
        TRIREME_CHECK(kernel.ok());
        return std::make_unique<BiasOfEachRank>(*std::move(kernel), spec, more);
      });
}

Kind Needs(int number, std::string family, std::string bug, std::string source, std::string needs) {
  return {.number = number,
          .family = std::move(family),
          .bug = std::move(bug),
          .source = std::move(source),
          .needs = std::move(needs)};
}

std::vector<Kind> Sums() {
  return {
      {.number = 1,
       .family = "sums",
       .bug = "norm gradients under sequence parallelism are not summed",
       .source = "Megatron-LM #1446",
       .planted = "engine: no sum over the tensor axis; plan: no bucket has that axis",
       .job = {.layout = {.tensor = 2, .sequence_parallel = true}},
       .plant = {.mutation = Mutation::kMissingSequenceParallelReduce,
                 .plan = [](v1::Plan& plan) { ForgetAxis(plan, v1::AXIS_TENSOR); },
                 .runs_plan = false},
       .spoils = IsRowSummed},
      Needs(2, "sums", "router weight or bias over tensor ranks",
            "Megatron-LM #599, torchtitan #4154", "routers and experts"),
      {.number = 3,
       .family = "sums",
       .bug = "a replicated bias is added on every rank",
       .source = "torchtitan #4245",
       .planted = "kernel: the bias behind a row-parallel product once for each tensor rank",
       .job = {.layout = {.tensor = 2}},
       .plant = {.kernels = AddBiasOfEachRank},
       .spoils = Everything},
      {.number = 4,
       .family = "sums",
       .bug = "the input gradient of a column-parallel layer is not reduced",
       .source = "SkyRL #1886",
       .planted = "engine: no AllReduce in backward",
       .job = {.layout = {.tensor = 2}},
       .plant = {.mutation = Mutation::kMissingBackwardReduce},
       .spoils = Everything},
      {.number = 5,
       .family = "sums",
       .bug = "both ends of the pipeline keep their own gradient of the tied embedding",
       .source = "Megatron-LM #656, #844",
       .planted = "engine: no sum over the tied stages; plan: no bucket has that axis",
       .job = {.layout = {.pipeline = 2}},
       .plant = {.mutation = Mutation::kTiedNotSummed,
                 .plan = [](v1::Plan& plan) { ForgetAxis(plan, v1::AXIS_TIED); },
                 .runs_plan = false},
       .spoils = IsTied,
       .names = {"stage 0", "wte.weight", "rank 0, rank 1"}},
      {.number = 6,
       .family = "sums",
       .bug = "the backward of a gather slices instead of summing",
       .source = "torchtitan #3827",
       .planted = "engine: no ReduceScatter in backward, each rank keeps its own slice",
       .job = {.layout = {.tensor = 2, .sequence_parallel = true}},
       .plant = {.mutation = Mutation::kGatherBackwardSlices},
       .spoils = Everything},
      Needs(7, "sums", "shared key/value heads over tensor ranks", "bigcode Megatron-LM #11",
            "key/value heads on several tensor ranks (here whole groups are cut, so none is "
            "shared)"),
      Needs(8, "sums", "context-parallel attention", "Megatron-LM #1464", "context parallelism"),
      {.number = 9,
       .family = "sums",
       .bug = "a parameter as large as the bucket is never reduced",
       .source = "DeepSpeed #4321",
       .planted = "engine: a bucket of bucket_bytes is not summed over the replicas",
       .job = {.layout = {.data = 2}},
       .plant = {.mutation = Mutation::kLargeBucketForgotten},
       .spoils = IsLarge},
      {.number = 10,
       .family = "sums",
       .bug = "accumulation under ZeRO-2 keeps the last micro-batch alone",
       .source = "DeepSpeed #545, #1488",
       .planted = "engine: each micro-batch's share replaces those before",
       .job = {.layout = {.data = 2, .zero = 2}},
       .plant = {.mutation = Mutation::kLastMicroBatchOnly},
       .spoils = Everything},
  };
}

std::vector<Kind> Scales() {
  return {
      Needs(11, "scale", "context-parallel loss", "Megatron-LM #673, #906", "context parallelism"),
      Needs(12, "scale", "an extra head's loss divided by the context ranks", "Megatron-LM #3959",
            "context parallelism and extra heads"),
      Needs(13, "scale", "auxiliary loss doubled", "Megatron-LM #7452", "routers and experts"),
      {.number = 14,
       .family = "scale",
       .bug = "ranks that share a sequence are counted as replicas in the mean",
       .source = "DeepSpeed #5248, #5555",
       .planted = "engine: the loss divided by the tensor ranks once more",
       .job = {.layout = {.tensor = 2, .sequence_parallel = true}},
       .plant = {.mutation = Mutation::kSequenceRanksInMean},
       .spoils = Everything},
      Needs(15, "scale", "experts' gradients times the expert ranks", "DeepSpeed #5618",
            "routers and experts"),
      {.number = 16,
       .family = "scale",
       .bug = "tokens are counted locally",
       .source = "transformers #34191",
       .planted = "engine: the mean of the replicas' own means",
       .job = {.layout = {.data = 2}},
       .plant = {.mutation = Mutation::kLocalTokenCount},
       .spoils = Everything},
      Needs(17, "scale", "stale loss scale", "DeepSpeed #2695", "loss scaling (bf16 needs none)"),
  };
}

std::vector<Kind> Norms() {
  return {
      {.number = 18,
       .family = "norm",
       .bug = "clipped by one tensor rank's norm",
       .source = "DeepSpeed #1801",
       .planted = "engine: clipping by the rank's own sum of squares",
       .job = {.layout = {.tensor = 2}},
       .plant = {.mutation = Mutation::kClipByShardNorm},
       .spoils = Everything},
      {.number = 19,
       .family = "norm",
       .bug = "what all tensor ranks hold is counted several times",
       .source = "ROCm TransformerEngine #715",
       .planted = "engine: replicated gradients count once per tensor rank",
       .job = {.layout = {.tensor = 2}},
       .plant = {.mutation = Mutation::kReplicatedNormCounted}},
      {.number = 20,
       .family = "norm",
       .bug = "duplicates over pipeline and tensor ranks are counted",
       .source = "DeepSpeed #5411",
       .planted = "engine: both stages' copies of the tied embedding count",
       .job = {.layout = {.tensor = 2, .pipeline = 2}},
       .plant = {.mutation = Mutation::kTiedCopyCounted}},
  };
}

}  // namespace

std::vector<Kind> KindsOfNumbers() {
  std::vector<Kind> kinds = Sums();
  for (const auto& more : {Scales(), Norms()}) kinds.insert(kinds.end(), more.begin(), more.end());
  return kinds;
}

}  // namespace trireme::silent_bugs
