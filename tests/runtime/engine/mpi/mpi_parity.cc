// The parity of tests/runtime/engine over real MPI: a process per rank, started by mpirun on 2, 4
// or 8 ranks. Every layout must agree with one rank to 1e-12 in f64, per parameter, and in bf16
// within the gates of layout_run.h. `--streams asynchronous`: the device's work on threads.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/mpi/mpi_fabric.h"
#include "runtime/model/model.h"
#include "runtime/plan/planner.h"
#include "runtime/tensor/stream.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/streams.h"

namespace trireme::engine {

namespace {

constexpr double kLimit = 1e-12;
constexpr std::chrono::milliseconds kDeadline(30000);

struct Case {
  std::string family;
  Layout layout;
  std::string dtype = "f64";
};

std::vector<Case> Cases(int ranks) {
  if (ranks == 2) {
    return {{"gpt2", {.data = 2, .zero = 1}},
            {"llama", {.tensor = 2, .sequence_parallel = true, .recompute = "selective"}},
            {"gpt2",
             {.pipeline = 2,
              .schedule = "gpipe",
              .offload_state = "host",
              .offload_activations = "file",
              .micro_batch = 1}},
            {"llama", {.pipeline = 2, .schedule = "zb-h1"}},
            {"gpt2", {.data = 2, .zero = 3, .recompute = "full", .offload_state = "file"}, "bf16"}};
  }
  if (ranks == 4) {
    return {{"gpt2", {.data = 2, .tensor = 2, .zero = 1}},
            {"gpt2", {.tensor = 2, .pipeline = 2, .sequence_parallel = true}},
            {"gpt2", {.pipeline = 4, .schedule = "gpipe", .micro_batch = 1}},
            {"llama", {.data = 4, .zero = 1, .micro_batch = 1}},
            {"gpt2", {.data = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 1}},
            {"llama", {.tensor = 2, .pipeline = 2, .schedule = "interleaved"}},
            {"llama", {.tensor = 4, .sequence_parallel = true, .micro_batch = 3}},
            {"gpt2", {.data = 4, .zero = 3, .recompute = "full", .micro_batch = 1}},
            {"llama",
             {.data = 2,
              .pipeline = 2,
              .schedule = "gpipe",
              .zero = 2,
              .recompute = "selective",
              .offload_state = "host",
              .offload_activations = "file",
              .micro_batch = 1,
              .loss_tile = 4}},
            {"gpt2",
             {.data = 2,
              .tensor = 2,
              .sequence_parallel = true,
              .zero = 3,
              .recompute = "selective",
              .offload_state = "file"}},
            {"gpt2",
             {.data = 2,
              .tensor = 2,
              .zero = 3,
              .recompute = "full",
              .offload_state = "file",
              .loss_tile = 7},
             "bf16"},
            {"llama", {.data = 2, .pipeline = 2, .zero = 2, .micro_batch = 1}, "bf16"}};
  }
  return {
      {"gpt2", {.data = 2, .tensor = 2, .pipeline = 2, .sequence_parallel = true, .zero = 1}},
      {"gpt2", {.data = 4, .pipeline = 2, .schedule = "interleaved", .zero = 1, .micro_batch = 1}},
      {"llama", {.data = 2, .pipeline = 4, .schedule = "zb-h1", .zero = 1, .micro_batch = 1}},
      {"llama", {.tensor = 4, .pipeline = 2, .sequence_parallel = true, .schedule = "1f1b"}},
      {"llama", {.data = 2, .tensor = 2, .pipeline = 2, .schedule = "zb-h1", .zero = 3}, "bf16"}};
}

// Adds what all ranks hold of the model's tensors: an element is owned by exactly one of them.
absl::Status JoinOverRanks(const v1::JobSpec& job, comm::Communicator& world, Tensors& tensors) {
  ASSIGN_OR_RETURN(const graph::ModelGraph graph, model::BuildModel(job.model().config()));
  const auto stream = tensor::MakeInlineStream();
  for (const graph::Parameter& parameter : graph.parameters) {
    std::vector<double>& values = tensors[parameter.name];
    values.resize(static_cast<size_t>(layout::Box::Whole(parameter.shape).elements()));
    for (double& value : values) value = std::isnan(value) ? 0 : value;
    RETURN_IF_ERROR(
        world.WaitHost(world.AllReduce(values.data(), static_cast<int64_t>(values.size()),
                                       tensor::DType::kF64, comm::ReduceOp::kSum, *stream),
                       kDeadline));
  }
  return absl::OkStatus();
}

absl::Status RunCase(const Case& each, comm::Fabric& fabric, comm::Communicator& world) {
  const bool bf16 = each.dtype == "bf16";
  // Masks would be those of f64, but what is dropped is not in the gates.
  const TinyJobOptions options{.family = each.family,
                               .dtype = each.dtype,
                               .dropout = each.family == "gpt2" && !bf16 ? 0.1 : 0.0};
  TinyJobOptions exact = options;
  exact.dtype = "f64";
  const auto dataset = MakeRandomDataset(29, 5);
  const v1::JobSpec job = JobFor(each.layout, options);
  ASSIGN_OR_RETURN(const v1::Plan plan, plan::MakePlan(job, fabric.size()));
  Tensors initial;
  if (bf16) {
    ASSIGN_OR_RETURN(const LayoutResult start,
                     RunLayout(JobFor({.micro_batch = 8}, exact), 1, *dataset, {.steps = 0}));
    initial = RoundedToBf16(start.weights);
  }
  const LayoutRunOptions run{.evaluate = true, .initial = bf16 ? &initial : nullptr};
  LayoutResult result;
  std::mutex mutex;
  RETURN_IF_ERROR(RunRank(plan, fabric, *dataset, run, result, mutex));
  RETURN_IF_ERROR(JoinOverRanks(job, world, result.gradients));
  RETURN_IF_ERROR(JoinOverRanks(job, world, result.weights));
  if (fabric.rank() != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const LayoutResult reference,
                   RunLayout(JobFor({.micro_batch = 8}, exact), 1, *dataset, run));
  const std::string faults = bf16 ? FaultsOfBf16(result, reference, initial,
                                                 GatesOfBf16(options.layers, each.layout.tensor))
                                  : FaultsOf(result, reference, kLimit);
  std::printf("mpi parity%s %s %s %s: %s\n",
              OptionsOf(job).device.asynchronous ? " on asynchronous streams" : "",
              each.family.c_str(), each.dtype.c_str(), each.layout.Name().c_str(),
              faults.empty() ? "ok" : faults.c_str());
  return faults.empty() ? absl::OkStatus() : absl::InternalError(faults);
}

absl::Status RunAll(comm::Fabric& fabric) {
  std::vector<int> all;
  for (int rank = 0; rank < fabric.size(); ++rank) all.push_back(rank);
  ASSIGN_OR_RETURN(const auto world, fabric.Group(all, "results"));
  for (const Case& each : Cases(fabric.size())) {
    RETURN_IF_ERROR(base::Annotate(RunCase(each, fabric, *world), each.layout.Name()));
  }
  return absl::OkStatus();
}

}  // namespace

}  // namespace trireme::engine

int main(int argc, char** argv) {
  for (int index = 1; index < argc; ++index) {
    const std::string_view argument = argv[index];
    if (argument == "--streams" && index + 1 < argc) {
      trireme::tests::asynchronous_streams = std::string_view(argv[++index]) == "asynchronous";
    }
  }
  auto fabric = trireme::comm::ConnectMpi(&argc, &argv);
  absl::Status status = fabric.status();
  if (status.ok()) status = trireme::engine::RunAll(**fabric);
  if (status.ok()) status = (*fabric)->Close();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::fflush(nullptr);
  trireme::comm::AbortJob(1);
}
