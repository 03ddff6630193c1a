// No numeric field without a range, no choice without its list; rules survive any numbers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "runtime/spec/job_spec.h"

namespace trireme::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

v1::JobSpec SmallJob() {
  auto job = ParseJob("model: {config: {model_type: gpt2}}\ndata: {text_files: [a.txt]}\n",
                      "/jobs/job.yaml", {});
  REQUIRE(job.ok());
  return *std::move(job);
}

// Calls visit(owner, field, path) for every field that is neither a list nor a section.
template <typename Visit>
void ForEachField(Message& message, const std::string& prefix, const Visit& visit) {
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.is_repeated()) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      ForEachField(*message.GetReflection()->MutableMessage(&message, &field),
                   prefix + field.name() + ".", visit);
    } else {
      visit(message, field, prefix + field.name());
    }
  }
}

bool Speaks(const v1::JobSpec& job, const std::string& path) {
  const std::vector<Fault> faults = Validate(job);
  return std::any_of(faults.begin(), faults.end(),
                     [&](const Fault& fault) { return fault.path == path; });
}

TEST_CASE("every number has a range on both sides") {
  v1::JobSpec job = SmallJob();
  const v1::JobSpec good = job;
  CHECK(Validate(job).empty());
  int numbers = 0;
  ForEachField(job, "", [&](Message& owner, const FieldDescriptor& field, const std::string& path) {
    INFO(path);
    const google::protobuf::Reflection& reflection = *owner.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      const int64_t before = reflection.GetInt64(owner, &field);
      const int64_t below = path == "resources.priority" ? -101 : -1;
      for (int64_t value :
           {std::numeric_limits<int64_t>::min(), below, std::numeric_limits<int64_t>::max()}) {
        reflection.SetInt64(&owner, &field, value);
        CHECK(Speaks(job, path));
      }
      reflection.SetInt64(&owner, &field, before);
      ++numbers;
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      const double before = reflection.GetDouble(owner, &field);
      for (double value : {-1e308, -1e-9, 1e308, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
        reflection.SetDouble(&owner, &field, value);
        CHECK(Speaks(job, path));
      }
      reflection.SetDouble(&owner, &field, before);
      ++numbers;
    }
  });
  CHECK(numbers > 40);
  CHECK(job.SerializeAsString() == good.SerializeAsString());
}

TEST_CASE("a value out of range is one fault, whatever leans on it") {
  v1::JobSpec job = SmallJob();
  job.mutable_optimizer()->set_learning_rate(-1);
  REQUIRE(Validate(job).size() == 1);
  CHECK(Validate(job)[0].path == "optimizer.learning_rate");
}

TEST_CASE("ranks asked for are those of the mesh") {
  v1::JobSpec job = SmallJob();
  v1::ParallelismSpec& mesh = *job.mutable_parallelism();
  mesh.set_tensor_parallel_size(2);
  mesh.set_pipeline_parallel_size(3);
  for (const int64_t ranks : {0, 6, 12, 600}) {
    job.mutable_resources()->set_ranks(ranks);
    CHECK(Validate(job).empty());
  }
  for (const int64_t ranks : {1, 3, 5, 7, 13}) {
    job.mutable_resources()->set_ranks(ranks);
    CHECK(Speaks(job, "resources.ranks"));
  }
  mesh.set_data_parallel_size(2);
  for (const int64_t ranks : {6, 11, 24}) {
    job.mutable_resources()->set_ranks(ranks);
    CHECK(Speaks(job, "resources.ranks"));
  }
  job.mutable_resources()->set_ranks(12);
  CHECK(Validate(job).empty());
}

TEST_CASE("chosen traces lie in the run and one after the other") {
  v1::JobSpec job = SmallJob();
  job.mutable_training()->set_steps(100);
  v1::RuntimeSpec& runtime = *job.mutable_runtime();
  runtime.set_trace_steps(3);
  for (const int64_t good : {1, 4, 50, 100}) runtime.add_trace_at(good);
  CHECK(Validate(job).empty());
  runtime.set_trace_steps(4);
  CHECK(Speaks(job, "runtime.trace_at[1]"));
  runtime.set_trace_steps(0);
  CHECK(Speaks(job, "runtime.trace_at"));
  runtime.set_trace_steps(1);
  CHECK(Validate(job).empty());
  job.mutable_training()->set_steps(99);
  CHECK(Speaks(job, "runtime.trace_at[3]"));
  job.mutable_training()->set_steps(10000);
  for (const int64_t bad : {std::numeric_limits<int64_t>::min(), int64_t{0}, int64_t{100},
                            int64_t{10001}, std::numeric_limits<int64_t>::max()}) {
    runtime.add_trace_at(bad);
    CHECK(Speaks(job, "runtime.trace_at[4]"));
    runtime.mutable_trace_at()->RemoveLast();
  }
  for (int64_t step = 101; runtime.trace_at_size() <= 1000; ++step) runtime.add_trace_at(step);
  CHECK(Speaks(job, "runtime.trace_at"));
}

TEST_CASE("names of nodes are names of machines and named once") {
  v1::JobSpec job = SmallJob();
  for (const char* good : {"n1", "Node-7_b.rack-2.example.org", "0"}) {
    job.mutable_resources()->add_nodes(good);
  }
  CHECK(Validate(job).empty());
  for (const std::string& bad :
       {std::string(), std::string("n 1"), std::string("n1/x"), std::string(254, 'a'),
        std::string("n\xc3\xa9"), std::string("0")}) {
    job.mutable_resources()->add_nodes(bad);
    CHECK(Speaks(job, "resources.nodes[3]"));
    job.mutable_resources()->mutable_nodes()->RemoveLast();
  }
}

TEST_CASE("every text is checked, but for the prompt") {
  v1::JobSpec job = SmallJob();
  ForEachField(job, "", [&](Message& owner, const FieldDescriptor& field, const std::string& path) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) return;
    if (path == "model.config_path" || path == "generation.prompt") return;
    INFO(path);
    const google::protobuf::Reflection& reflection = *owner.GetReflection();
    const bool present = reflection.HasField(owner, &field);
    const std::string before = reflection.GetString(owner, &field);
    reflection.SetString(&owner, &field, "a\nb");
    CHECK(Speaks(job, path));
    reflection.SetString(&owner, &field, "");
    CHECK(Speaks(job, path));
    if (present) {
      reflection.SetString(&owner, &field, before);
    } else {
      reflection.ClearField(&owner, &field);
    }
  });
}

TEST_CASE(
    "defaults and rules take any numbers without overflow, and defaults are never the fault") {
  std::mt19937_64 random(3);
  const int64_t extremes[] = {std::numeric_limits<int64_t>::min(), -1, 0, 1, 2, 3, 1 << 16,
                              std::numeric_limits<int64_t>::max()};
  for (int i = 0; i < 3000; ++i) {
    v1::JobSpec job;
    v1::ModelConfig& model = *job.mutable_model()->mutable_config();
    model.set_model_type(random() % 2 == 0 ? "gpt2" : "llama");
    job.mutable_data()->add_text_files("/a");
    std::vector<std::string> given;
    ForEachField(job, "",
                 [&](Message& owner, const FieldDescriptor& field, const std::string& path) {
                   if (field.cpp_type() != FieldDescriptor::CPPTYPE_INT64 || random() % 8 != 0) {
                     return;
                   }
                   owner.GetReflection()->SetInt64(&owner, &field, extremes[random() % 8]);
                   given.push_back(path);
                 });
    job.mutable_model()->clear_config_path();
    ApplyDefaults(job);
    const std::vector<Fault> faults = Validate(job);
    if (given.empty()) CHECK(faults.empty());
  }
}

}  // namespace
}  // namespace trireme::spec
