// The batches that a job trains on, as a file that other programs can read: safetensors with
// `tokens` and `targets`, i32 [steps][global_batch_size][sequence_length]. Sample i of step s is
// sample s * global_batch_size + i of the data, whatever the layout.
//
//   write_batches JOB.yaml OUT.safetensors [FIELD=VALUE ...]
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"
#include "runtime/data/dataset.h"
#include "runtime/safetensors/safetensors.h"
#include "runtime/spec/job_spec.h"

namespace trireme {
namespace {

absl::Status WriteBatches(const std::string& job_path, const std::string& out_path,
                          const std::vector<std::string>& overrides) {
  ASSIGN_OR_RETURN(const v1::JobSpec job, spec::LoadJob(job_path, overrides));
  const v1::DataSpec& data = job.data();
  ASSIGN_OR_RETURN(
      const auto dataset,
      data::OpenDataset({.text_files = {data.text_files().begin(), data.text_files().end()},
                         .tokenizer = data.tokenizer(),
                         .sequence_length = data.sequence_length(),
                         .validation_fraction = data.validation_fraction(),
                         .order = data.order(),
                         .seed = job.seed()}));
  const int64_t length = data.sequence_length();
  const std::vector<int64_t> shape = {job.training().steps(), job.training().global_batch_size(),
                                      length};
  const int64_t samples = shape[0] * shape[1];
  std::vector<int32_t> tokens(static_cast<size_t>(samples * length));
  std::vector<int32_t> targets(tokens.size());
  for (int64_t sample = 0; sample < samples; ++sample) {
    const auto at = static_cast<size_t>(sample * length);
    dataset->Fill(data::Split::kTrain, sample,
                  std::span(tokens).subspan(at, static_cast<size_t>(length)),
                  std::span(targets).subspan(at, static_cast<size_t>(length)));
  }
  using safetensors::Element;
  ASSIGN_OR_RETURN(safetensors::Writer writer,
                   safetensors::Writer::Create(out_path, {{"tokens", Element::kI32, shape},
                                                          {"targets", Element::kI32, shape}}));
  RETURN_IF_ERROR(writer.Append("tokens", std::as_bytes(std::span(tokens))));
  RETURN_IF_ERROR(writer.Append("targets", std::as_bytes(std::span(targets))));
  return writer.Finish();
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    std::fprintf(stderr, "usage: write_batches JOB.yaml OUT.safetensors [FIELD=VALUE ...]\n");
    return 2;
  }
  const absl::Status status =
      trireme::WriteBatches(arguments[0], arguments[1], {arguments.begin() + 2, arguments.end()});
  if (status.ok()) return 0;
  std::fprintf(stderr, "write_batches: %s\n", std::string(status.message()).c_str());
  return 1;
}
