// Overrides, paths, files that are no job files, and limits.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/spec/job_spec.h"
#include "runtime/spec/suggestion.h"

namespace trireme::spec {
namespace {

const std::string kJob =
    "model: {config: {model_type: gpt2, hidden_size: 64, num_attention_heads: 4}}\n"
    "data: {text_files: [a.txt, ../b.txt, /c.txt]}\n";

absl::StatusOr<v1::JobSpec> Parse(const std::string& text,
                                  const std::vector<std::string>& overrides = {}) {
  return ParseJob(text, "/jobs/one/job.yaml", overrides);
}

std::string Refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const auto job = Parse(text, overrides);
  REQUIRE_FALSE(job.ok());
  return std::string(job.status().message());
}

TEST_CASE("paths of a file start at its folder, those of overrides and defaults at the current") {
  const std::string here = std::filesystem::current_path().string();
  const auto job = Parse(kJob);
  REQUIRE(job.ok());
  CHECK(job->data().text_files(0) == "/jobs/one/a.txt");
  CHECK(job->data().text_files(1) == "/jobs/b.txt");
  CHECK(job->data().text_files(2) == "/c.txt");
  CHECK(job->runtime().runs_directory() == here + "/runs");
  const auto changed = Parse(kJob + "runtime: {runs_directory: out}\n",
                             {"data.text_files=[x.txt]", "checkpoint.directory=keep"});
  REQUIRE(changed.ok());
  CHECK(changed->data().text_files_size() == 1);
  CHECK(changed->data().text_files(0) == here + "/x.txt");
  CHECK(changed->checkpoint().directory() == here + "/keep");
  CHECK(changed->runtime().runs_directory() == "/jobs/one/out");
}

TEST_CASE("overrides win over the file, the last over the first, and reach every kind of field") {
  const auto job =
      Parse(kJob + "training: {steps: 5, dtype: f32}\nparallelism: {layers_per_stage: [6, 6]}\n",
            {"training.steps=6", "training.steps=+7", "seed=18446744073709551615",
             "optimizer.learning_rate=2.5e-4", "parallelism.sequence_parallel=true",
             "parallelism.tensor_parallel_size=2", "parallelism.pipeline_parallel_size=3",
             "parallelism.layers_per_stage=[2,4,6]", "generation.prompt=To be: #1 = \"it\"",
             "model.config={num_hidden_layers: 12, bias: false}", "name='quoted'"});
  REQUIRE(job.status().ToString() == "OK");
  CHECK(job->training().steps() == 7);
  CHECK(job->training().dtype() == "f32");
  CHECK(job->seed() == 18446744073709551615u);
  CHECK(job->optimizer().learning_rate() == 2.5e-4);
  CHECK(job->parallelism().sequence_parallel());
  REQUIRE(job->parallelism().layers_per_stage_size() == 3);
  CHECK(job->parallelism().layers_per_stage(2) == 6);
  CHECK(job->generation().prompt() == "To be: #1 = \"it\"");
  CHECK(job->model().config().hidden_size() == 64);
  CHECK_FALSE(job->model().config().bias());
  CHECK(job->name() == "quoted");
  const auto escaped = Parse(kJob, {"generation.prompt=\"a\\nb\""});
  REQUIRE(escaped.ok());
  CHECK(escaped->generation().prompt() == "a\nb");
}

TEST_CASE("what is recomputed is one mode for all layers, or one for each in their order") {
  const auto modes = [](const std::string& value, const std::vector<std::string>& overrides) {
    auto job = Parse(kJob + "parallelism: {recompute: " + value + "}\n", overrides);
    INFO(value);
    REQUIRE(job.status().ToString() == "OK");
    job->mutable_model()->mutable_config()->set_num_hidden_layers(4);
    CHECK(Validate(*job).empty());
    const auto& given = job->parallelism().recompute();
    return std::vector<std::string>(given.begin(), given.end());
  };
  const std::vector<std::string> each = {"full", "none", "selective", "none"};
  const std::vector<std::string> four = {"model.config.num_hidden_layers=4"};
  CHECK(modes("[full, none, selective, none]", four) == each);
  CHECK(modes("[full]", {}) == std::vector<std::string>{"full"});
  CHECK(modes("selective", {}) == std::vector<std::string>{"selective"});
  CHECK(modes("none", {four[0], "parallelism.recompute=[full,none,selective,none]"}) == each);
}

TEST_CASE("an echo of a job reads no other file") {
  const auto job = Parse(kJob);
  REQUIRE(job.ok());
  const auto echo = ParseEcho(ToYaml(*job), "manifest.json");
  REQUIRE(echo.ok());
  CHECK(echo->SerializeAsString() == job->SerializeAsString());
  const auto leads = ParseEcho("model: {config_path: /etc/hostname}\n", "manifest.json");
  REQUIRE(absl::IsInvalidArgument(leads.status()));
  CHECK(absl::StrContains(leads.status().message(),
                          "manifest.json:1: model.config_path: an echo of a job names no other"));
  CHECK(leads.status().message().find("/etc/hostname") == absl::string_view::npos);
}

TEST_CASE("a rule broken by an override is told of the override, not of a line") {
  CHECK(Refusal(kJob + "training:\n  steps: 5\n", {"training.steps=0"}) ==
        "--set training.steps=0: training.steps: 0 is out of range, expected 1 to 1000000000");
  CHECK(Refusal(kJob, {"parallelism.tensor_paralel_size=3"}) ==
        "--set parallelism.tensor_paralel_size=3: parallelism.tensor_paralel_size: unknown field, "
        "did you mean tensor_parallel_size?");
  CHECK(absl::StartsWith(Refusal(kJob, {"name=\xff"}), "--set name=\\xff: name: expected UTF-8"));
  const std::string both = kJob + "optimizer:\n  warmup_steps: 50\n";
  CHECK(absl::StartsWith(Refusal(both, {"optimizer.decay_steps=10"}), "/jobs/one/job.yaml:4: opt"));
  CHECK(absl::StartsWith(Refusal(kJob, {"optimizer.warmup_steps=50", "optimizer.decay_steps=10"}),
                         "--set optimizer.warmup_steps=50: optimizer.warmup_steps: 50 is more"));
  CHECK(absl::StrContains(Refusal(kJob, {"training.steps="}), "has no value"));
  CHECK(absl::StrContains(Refusal(kJob, {"training.steps=[1"}), "--set training.steps=[1: "));
  CHECK(absl::StrContains(Refusal(kJob, {"=1"}), "expected name=value"));
  CHECK(absl::StrContains(Refusal(kJob, {"a..b=1"}), "unknown field"));
}

TEST_CASE("faults come in the order of the files' lines, each once") {
  CHECK(Refusal("trainig: 1\n" + kJob + "seed: x\nname: a b\n", {"sed=1"}) ==
        "/jobs/one/job.yaml:1: trainig: unknown field, did you mean training?\n"
        "/jobs/one/job.yaml:4: seed: expected a whole number from 0, got x\n"
        "/jobs/one/job.yaml:5: name: \"a b\" cannot name a run folder, expected 1 to 64 letters, "
        "digits, '-', '_' and '.', not beginning with '.'\n"
        "--set sed=1: sed: unknown field, did you mean seed?");
}

TEST_CASE("an unreadable value silences the rules on itself, not those on its neighbours") {
  CHECK(Refusal(kJob + "training:\n  step: 1\n  steps: 0\n  micro_batch_size: x\n") ==
        "/jobs/one/job.yaml:4: training.step: unknown field, did you mean steps?\n"
        "/jobs/one/job.yaml:5: training.steps: 0 is out of range, expected 1 to 1000000000\n"
        "/jobs/one/job.yaml:6: training.micro_batch_size: expected a whole number, got x");
}

TEST_CASE("what is no job file is refused by what it is") {
  const std::string folder = std::string(TRIREME_BINARY_DIR) + "/spec_test_files";
  std::filesystem::create_directories(folder);
  const auto refusal = [](const std::string& path) {
    const auto job = LoadJob(path, {});
    REQUIRE(job.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(job.status().message());
  };
  CHECK(refusal(folder + "/none.yaml") == folder + "/none.yaml: no such file; check the path");
  CHECK(refusal(folder) == folder + ": is a folder, expected a file");
  CHECK(refusal("/dev/null") == "/dev/null: is a device, pipe or socket, expected a file");
  const std::string large = folder + "/large.yaml";
  std::ofstream(large) << "# " << std::string(1 << 20, 'x') << "\n";
  CHECK(absl::StartsWith(refusal(large), large + ": has 1048579 bytes, more than the limit"));
  const std::string empty = folder + "/empty.yaml";
  std::ofstream(empty).flush();
  CHECK(absl::StartsWith(refusal(empty), empty + ": is empty"));
  CHECK(absl::StrContains(refusal(std::string(5000, 'a')), "cannot be read"));
}

TEST_CASE("large documents of any shape are refused or read, without a crash or a stall") {
  const size_t size = 1 << 19;
  std::string keys;
  for (int i = 0; keys.size() < size; ++i) absl::StrAppend(&keys, "k", i, ": 1\n");
  std::string nested;
  for (int i = 0; i < 700; ++i) absl::StrAppend(&nested, std::string(i, ' '), "a:\n");
  for (const std::string& text :
       {std::string(size, '['), std::string(size, '{'), std::string(size, '"'),
        std::string(size, '-'), std::string(size, '&'), std::string(size, '\n'), keys, nested,
        "a: " + std::string(size, 'x'), std::string(size, '?') + ": ", "name: |\n" + nested,
        "%" + std::string(size, 'x')}) {
    CHECK_FALSE(Parse(text).ok());
  }
  const std::string faults = Refusal(keys);
  CHECK(std::count(faults.begin(), faults.end(), '\n') == 100);
  CHECK(absl::EndsWith(faults, "\n(only the first 100 faults are listed)"));
}

TEST_CASE("a byte order mark, carriage returns, comments and block texts are fine") {
  const auto job = Parse("\xef\xbb\xbf# caf\xc3\xa9\r\nname: x  # why\r\n" + kJob +
                         "generation:\n  prompt: |\n    first\n    second\n");
  REQUIRE(job.status().ToString() == "OK");
  CHECK(job->name() == "x");
  CHECK(job->generation().prompt() == "first\nsecond\n");
  const auto quotes = Parse(kJob + "generation: {prompt: 'it''s \"so\"'}\n");
  REQUIRE(quotes.status().ToString() == "OK");
  CHECK(quotes->generation().prompt() == "it's \"so\"");
}

TEST_CASE("the job is named after its file, in legal letters") {
  const auto named = ParseJob(kJob, "/jobs/my job (2).yaml", {});
  REQUIRE(named.ok());
  CHECK(named->name() == "my-job--2-");
}

TEST_CASE("near names are near") {
  CHECK(NameDistance("steps", "steps") == 0.0);
  CHECK(NameDistance("setps", "steps") == 1.0);
  CHECK(NameDistance("tensor_paralel", "tensor_parallel_size") <
        NameDistance("tensor_paralel", "data_parallel_size"));
}

}  // namespace
}  // namespace trireme::spec
