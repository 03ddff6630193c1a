// The echo of a job reads back to the same bits; the hash changes with what a resume depends on and
// with nothing else.
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "runtime/spec/job_spec.h"

namespace trireme::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

v1::JobSpec Job() {
  auto job = ParseJob(
      "name: pinned\nmodel: {config: {model_type: gpt2, hidden_size: 64}}\n"
      "data: {text_files: [a.txt, b.txt]}\nruntime: {runs_directory: /runs}\n",
      "/jobs/job.yaml", std::vector<std::string>{"model.config.num_attention_heads=4"});
  REQUIRE(job.status().ToString() == "OK");
  return *std::move(job);
}

void RequireEcho(const v1::JobSpec& job) {
  const auto again = ParseJob(ToYaml(job), "/elsewhere/echo.yaml", {});
  INFO(ToYaml(job));
  REQUIRE(again.status().ToString() == "OK");
  REQUIRE(again->SerializeAsString() == job.SerializeAsString());
}

TEST_CASE("doubles of any bits read back exactly") {
  std::mt19937_64 random(7);
  v1::JobSpec job = Job();
  for (int i = 0; i < 300; ++i) {
    const auto fraction = [&] { return static_cast<double>(random() >> 11) * 0x1.0p-53; };
    job.mutable_optimizer()->set_learning_rate(fraction() * 1000);
    job.mutable_optimizer()->set_min_learning_rate(fraction() * 1e-300 * 1e-20);
    job.mutable_optimizer()->set_gradient_clip_norm(fraction() * 1e29);
    job.mutable_optimizer()->set_beta2(fraction());
    if (job.optimizer().min_learning_rate() > job.optimizer().learning_rate()) continue;
    RequireEcho(job);
  }
}

TEST_CASE("texts with quotes, escapes, colons and other scripts read back exactly") {
  v1::JobSpec job = Job();
  for (const std::string& prompt :
       {std::string("a: b # c"), std::string("\"'\\n\\"), std::string("line\nline\r\ttab"),
        std::string("\x01\x04\x7f|"), std::string("caf\xc3\xa9 \xe6\x97\xa5\xf0\x9f\x9a\xa3"),
        std::string(" "), std::string("true"), std::string("- [x]"), std::string("a\0b", 3),
        std::string("\xc2\x85\xe2\x80\xa8\xef\xbb\xbf")}) {
    job.mutable_generation()->set_prompt(prompt);
    RequireEcho(job);
  }
}

TEST_CASE("lists and absent fields read back") {
  v1::JobSpec job = Job();
  job.mutable_parallelism()->set_pipeline_parallel_size(2);
  job.mutable_parallelism()->add_layers_per_stage(5);
  job.mutable_parallelism()->add_layers_per_stage(7);
  job.mutable_checkpoint()->set_directory("/keep/these, [and] those");
  *job.mutable_data()->mutable_text_files(0) = "/a \"b\", c.txt";
  RequireEcho(job);
}

// Another legal or illegal value: the hash does not care.
void Change(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      if (field.is_repeated()) return reflection.AddInt64(&message, &field, 3);
      return reflection.SetInt64(&message, &field, reflection.GetInt64(message, &field) + 1);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, &field, reflection.GetUInt64(message, &field) + 1);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&message, &field,
                                  reflection.GetDouble(message, &field) * (1 + 1e-15) + 1e-30);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, !reflection.GetBool(message, &field));
    default:
      if (field.is_repeated()) return reflection.AddString(&message, &field, "/x/new.txt");
      return reflection.SetString(&message, &field, reflection.GetString(message, &field) + "x");
  }
}

void CollectDeaf(const Message& section, const std::string& prefix, const v1::JobSpec& job,
                 const std::vector<const FieldDescriptor*>& way, std::set<std::string>& deaf) {
  const google::protobuf::Descriptor& descriptor = *section.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      std::vector<const FieldDescriptor*> longer = way;
      longer.push_back(&field);
      CollectDeaf(section.GetReflection()->GetMessage(section, &field), prefix + field.name() + ".",
                  job, longer, deaf);
      continue;
    }
    v1::JobSpec changed = job;
    Message* owner = &changed;
    for (const FieldDescriptor* step : way) {
      owner = owner->GetReflection()->MutableMessage(owner, step);
    }
    Change(*owner, field);
    const std::string top = prefix.substr(0, prefix.find('.'));
    const bool whole = top != "model" && top != "data" && top != "training" && top != "optimizer";
    if (SpecHash(changed) == SpecHash(job)) {
      deaf.insert(whole && !prefix.empty() ? top : prefix + field.name());
    }
  }
}

TEST_CASE("the hash hears every field that a bit-exact resume depends on, and no other") {
  const v1::JobSpec job = Job();
  std::set<std::string> deaf;
  CollectDeaf(job, "", job, {}, deaf);
  CHECK(deaf == std::set<std::string>{
                    "name", "model.config_path", "training.steps", "training.micro_batch_size",
                    "training.loss_tile_rows", "parallelism", "checkpoint", "evaluation", "runtime",
                    "generation", "compression", "offload", "snapshots", "resources"});
  v1::JobSpec seeded = job;
  seeded.set_seed(1);
  CHECK(SpecHash(seeded) != SpecHash(job));
}

TEST_CASE("the hash hears compression that is on but not how large a message must be") {
  v1::JobSpec on = Job();
  on.mutable_compression()->mutable_pipeline()->set_mode("on");
  CHECK(SpecHash(on) != SpecHash(Job()));
  v1::JobSpec other = on;
  other.mutable_compression()->mutable_pipeline()->set_min_bytes(1);
  other.mutable_compression()->mutable_data_parallel()->set_bound("rms:7");
  other.mutable_compression()->set_link_gbits(10);
  CHECK(SpecHash(other) == SpecHash(on));
  other.mutable_compression()->mutable_pipeline()->set_bound("rms:7");
  CHECK(SpecHash(other) != SpecHash(on));
  const ResumeDifferences differences = CompareForResume(on, other);
  CHECK(differences.forbidden.empty());
  CHECK(differences.changed ==
        std::vector<std::string>{"compression.pipeline.bound: \"rms:0.05\" there, \"rms:7\" here"});
}

// Jobs that were saved before the option was there have no field of it.
TEST_CASE("the hash hears how gradients travel where that changes numbers, and a resume may") {
  v1::JobSpec without = Job(), as_bf16 = Job();
  without.mutable_training()->clear_gradient_transfer();
  CHECK(SpecHash(without) == SpecHash(Job()));
  as_bf16.mutable_training()->set_gradient_transfer("bf16");
  CHECK(SpecHash(as_bf16) != SpecHash(Job()));
  const ResumeDifferences differences = CompareForResume(without, as_bf16);
  CHECK(differences.forbidden.empty());
  REQUIRE(differences.changed.size() == 1);
  CHECK(absl::StartsWith(differences.changed[0], "training.gradient_transfer: "));
}

TEST_CASE("the hash takes no notice of folders, but of the files' order") {
  v1::JobSpec moved = Job();
  *moved.mutable_data()->mutable_text_files(0) = "/other/place/a.txt";
  CHECK(SpecHash(moved) == SpecHash(Job()));
  moved.mutable_data()->mutable_text_files()->SwapElements(0, 1);
  CHECK(SpecHash(moved) != SpecHash(Job()));
}

TEST_CASE("differences name the fields that the hash hears") {
  v1::JobSpec other = Job();
  other.mutable_training()->set_steps(Job().training().steps() + 1);
  const ResumeDifferences none = CompareForResume(Job(), other);
  CHECK((none.forbidden.empty() && none.changed.empty()));
  other.mutable_optimizer()->set_decay_steps(7777);
  other.mutable_training()->set_nonfinite_policy("skip");
  other.mutable_training()->set_global_batch_size(77);
  other.clear_seed();
  const ResumeDifferences differences = CompareForResume(Job(), other);
  REQUIRE(differences.changed.size() == 2);
  CHECK(differences.changed[0] ==
        absl::StrCat("optimizer.decay_steps: ", Job().optimizer().decay_steps(),
                     " there, 7777 here"));
  REQUIRE(differences.forbidden.size() == 2);
  CHECK(differences.forbidden[0] == absl::StrCat("seed: ", Job().seed(), " there, absent here"));
  CHECK(absl::StartsWith(differences.forbidden[1], "training.global_batch_size: "));
}

TEST_CASE("a difference shows the values that the jobs have") {
  // What the hash does not hear of one of them is no "0 or empty" for that.
  v1::JobSpec off = Job(), on = Job();
  off.mutable_training()->set_gradient_transfer("f32");
  on.mutable_training()->set_gradient_transfer("bf16");
  off.mutable_compression()->mutable_data_parallel()->set_mode("off");
  off.mutable_compression()->mutable_data_parallel()->set_bound("rms:0.1");
  on.mutable_compression()->mutable_data_parallel()->set_mode("on");
  on.mutable_compression()->mutable_data_parallel()->set_bound("rms:0.1");
  off.mutable_optimizer()->set_weight_decay(0);
  on.mutable_optimizer()->set_weight_decay(0.5);
  const ResumeDifferences differences = CompareForResume(off, on);
  CHECK(differences.forbidden.empty());
  CHECK(differences.changed ==
        std::vector<std::string>{"compression.data_parallel.mode: \"off\" there, \"on\" here",
                                 "optimizer.weight_decay: 0 there, 0.5 here",
                                 "training.gradient_transfer: \"f32\" there, \"bf16\" here"});
}

TEST_CASE("what a job takes of a cluster makes no other run of it") {
  v1::JobSpec other = Job();
  other.mutable_resources()->set_ranks(8);
  other.mutable_resources()->set_priority(-7);
  other.mutable_resources()->add_nodes("n1");
  CHECK(SpecHash(other) == SpecHash(Job()));
  const ResumeDifferences differences = CompareForResume(Job(), other);
  CHECK((differences.forbidden.empty() && differences.changed.empty()));
}

TEST_CASE("the hash of a known job stays what it was, so that old checkpoints still resume") {
  CHECK(SpecHash(Job()) == 0x1fdaa705bdccaf81u);
}

}  // namespace
}  // namespace trireme::spec
