// Runs a few steps of a tiny job on any mesh, ranks as threads, and gathers logical tensors: the
// measuring device of the parity, mutation and oracle suites.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/mutation.h"
#include "runtime/engine/training_state.h"
#include "runtime/kernels/kernel.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::engine {

// Logical tensors in row-major order, as f64.
using Tensors = std::map<std::string, std::vector<double>>;

struct LayoutResult {
  Tensors gradients;  // of the first step, before clipping
  Tensors weights;    // after the last step
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> learning_rates;
  double validation_loss = 0;
  std::vector<int32_t> drawn;     // tokens, by all ranks the same
  int64_t activations_moved = 0;  // SWAP_OUTs of activations in a step, over all stages
};

constexpr uint32_t kEachBucket = UINT32_MAX;

struct LayoutRunOptions {
  int steps = 3;
  bool evaluate = false;
  int draw = 0;  // tokens after the steps, half of them greedily
  int threads = 1;
  comm::LocalOptions transport;
  // Replaces the initial weights where not empty.
  const Tensors* initial = nullptr;
  // Instead of those that the job names.
  const kernels::KernelRegistry* kernels = nullptr;
  Mutation mutation = Mutation::kCount;
  uint32_t mutated_bucket = kEachBucket;
  tensor::SwapFolder offload_folder = {};  // EngineOptions
  bool whole_plans = false;                // else each rank has its slice
  uint32_t snapshot_slots = 0;             // of the plan
};

// InvalidArgument where the planner refuses the layout (the reason), any other error where it
// fails.
absl::StatusOr<LayoutResult> RunLayout(const v1::JobSpec& job, int ranks,
                                       const data::Dataset& dataset,
                                       const LayoutRunOptions& options = {});

// Ok where the rank has what its stage's plan says of every place, to the byte; of a file, to the
// page. Internal with both numbers where not.
absl::Status CheckMemory(const Engine& engine, const v1::StagePlan& stage);

// What one rank of `plan` does, CheckMemory first: all steps, its own pieces into `result` under
// `mutex`. Elements of other processes' ranks stay NaN, tensors it holds nothing of are absent.
absl::Status RunRank(const v1::Plan& plan, comm::Fabric& fabric, const data::Dataset& dataset,
                     const LayoutRunOptions& options, LayoutResult& result, std::mutex& mutex);

// The kernels that runtime.kernels names.
const kernels::KernelRegistry& KernelsOf(const v1::JobSpec& job);

// Kernels and streams as the job says, and memory that the host cannot look into.
EngineOptions OptionsOf(const v1::JobSpec& job);
// The latter; on asynchronous streams also where the whole program is to be (tests/streams.h).
tensor::HostDeviceOptions StrictDevice(bool asynchronous);

// Copies what the rank owns of a kind of state into the logical tensors; elements that nobody
// brings stay NaN.
void GatherTensors(Engine& engine, const std::string& kind, Tensors& into, std::mutex& mutex);

// Plants `mutation` in every engine of this process until called with kCount; what it does with
// buckets in the one of this index on each stage, or in each.
void PlantMutation(Mutation mutation, uint32_t bucket = kEachBucket);

// Tokens of a counter-based generator; about one target in eight is not counted, unevenly over the
// samples.
std::unique_ptr<data::Dataset> MakeRandomDataset(int64_t vocab_size, int64_t sequence_length);

// max |a - b| over all elements of a tensor, divided by `scale`, per tensor that exceeds `limit`.
std::map<std::string, double> Differences(const Tensors& a, const Tensors& b, double scale,
                                          double limit);
double NormOf(const Tensors& tensors);

// Empty if all numbers of both are the same to the bit; else which are not.
std::string UnlikeIn(const LayoutResult& result, const LayoutResult& expected);

// To the nearest that bf16 holds.
Tensors RoundedToBf16(Tensors tensors);

// Empty if gradients, weights and losses agree within `limit` of the reference's norms, and, where
// the limit is one of f32, each gradient by its own scale too: against the norm of all a parameter
// of small gradients could be wholly wrong. And if so do the norms that are reported, within ten
// times that: a norm errs by the part of the error that lies along the gradients, of independent
// errors no more than one element's deviation, and later steps' gradients by what weights are
// apart. Else what differs.
std::string FaultsOf(const LayoutResult& result, const LayoutResult& reference, double limit);

// How far a run in bf16 may lie from one in f64 of the same weights. An operator's result that is
// stored errs by at most half a unit, 2^-8 of itself. On the way through a layer ten are stored,
// attention's probabilities among them, and two sums are made of one part of each tensor rank; four
// outside of the layers; as many on the way back, and the gradient of the scores. They are
// independent, so with n in all a gradient's standard deviation is 2^-8 sqrt(n) of the gradients'
// root mean square, as a bound where operators amplify no error; the uniform error's 1/sqrt(3) is
// left for those that do.
struct Bf16Gates {
  double gradient = 0;  // worst element: five deviations, one in 10^6, against the own scale or, if
                        // greater, that of all
  double gradient_rms = 0;  // RMS difference of a tensor's gradient over its RMS: two deviations
  double update = 0;        // RMS difference of a tensor's weights over their RMS movement: AdamW's
                            // first steps follow the gradients, two deviations
  double loss = 0;          // nats: one way alone
  double norm = 0;          // of the first step, relative: five deviations of a mean over 40 rows
  double of_element = 0;    // of a gradient's element itself, beside `gradient`
};
Bf16Gates GatesOfBf16(int64_t layers, int64_t tensor);

// Where gradients travel as bf16 each replica's part of an element is rounded once, and their sum
// once more: by at most 2^-8 of it, so with a deviation of 2^-8/sqrt(3). Of independent parts the
// squares add up to the sum's; here they may add up to four times that, where parts cancel. So an
// element's error has a deviation of at most 2^-8 sqrt(8/3) of the element or, if greater, the root
// mean square of its gradient. In bf16 five of them stand beside the gate of a gradient
// (Bf16Gates::of_element), which knows no element that is many times the root mean square.
constexpr double kTransferDeviation = 0x1p-8 * 1.633;

// As FaultsOf, of a run in f32 whose gradients travel as bf16; both began with the weights
// `initial`. Empty if each element's error is within five deviations, and so are all errors
// together along the gradient, as of roundings that know no direction; and weights and losses have
// moved as the reference's, but for twice the deviation of what they have moved. So are the norms
// but for twice the deviation: the root mean square of the errors is at most sqrt(2) deviations of
// the gradients', and no norm is further from another than their difference is long.
std::string FaultsOfTransfer(const LayoutResult& result, const LayoutResult& reference,
                             const Tensors& initial);

// As FaultsOf, of a run in bf16; both began with the weights `initial`, which bf16 can hold. Later
// norms, of weights that are apart, may be so by as much as each tensor's gradient (gradient_rms).
std::string FaultsOfBf16(const LayoutResult& result, const LayoutResult& reference,
                         const Tensors& initial, const Bf16Gates& gates);

struct TinyJobOptions {
  std::string family = "gpt2";
  std::string dtype = "f64";
  int64_t layers = 4;
  double dropout = 0;
  bool tie = true;
  bool bias = true;
  // Not empty: all that can be coded is, whatever its size; f32 only.
  std::string compression;  // a mode
  std::string gradient_transfer = "f32";
};
// A resolved job of a model small enough for thousands of runs.
v1::JobSpec TinyJob(const TinyJobOptions& options);

struct Layout {
  int64_t data = 1, tensor = 1, pipeline = 1;
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  int64_t zero = 0;
  std::string recompute = "none";
  std::string offload_state = "none", offload_activations = "none";
  int64_t micro_batch = 2;  // of a global batch of 8: accumulation, with a remainder for 3
  int64_t loss_tile = 0;    // rows, of five a sample; 0: all
  int ranks() const { return static_cast<int>(data * tensor * pipeline); }
  std::string Name() const;
};
// TinyJob on this layout.
v1::JobSpec JobFor(const Layout& layout, const TinyJobOptions& options);

}  // namespace trireme::engine
