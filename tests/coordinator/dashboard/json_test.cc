// Jobs, events, nodes and plans as a page reads them.
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstring>

#include "coordinator/dashboard/job_json.h"
#include "coordinator/dashboard/plan_json.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "tests/coordinator/dashboard/run_folder.h"

namespace trireme::dashboard {
namespace {

v1::Job FailedJob() {
  v1::Job job;
  job.set_id(12);
  job.set_name("night");
  job.set_owner("ada");
  job.set_submitted_unix_ns(1'700'000'000'123'456'789);
  job.mutable_status()->set_state(v1::JOB_FAILED);
  job.mutable_status()->set_attempt(5);
  job.mutable_status()->mutable_failure()->set_headline("rank 3 died \xff");
  job.mutable_status()->mutable_failure()->set_evidence("a line\nanother");
  job.mutable_resources()->set_ranks(8);
  job.mutable_resources()->set_cpus_per_rank(3);
  v1::NodeAllocation& part = *job.add_allocation();
  part.set_node("n1");
  part.set_ranks(8);
  return job;
}

v1::Event Changed(v1::JobState to, const std::string& reason, const std::string& headline = "") {
  v1::Event event;
  event.set_sequence(7);
  event.set_job_id(12);
  event.mutable_state_changed()->set_to(to);
  event.mutable_state_changed()->set_reason(reason);
  event.mutable_state_changed()->mutable_failure()->set_headline(headline);
  return event;
}

}  // namespace

TEST_CASE("a job tells its state, its failure and no bytes that are no text") {
  const Json job = Parsed(JsonText(JobDetails(FailedJob())));
  CHECK(job["id"] == 12);
  CHECK(job["state"] == "failed");
  CHECK(job["desired_state"] == "run");
  CHECK(job["submitted_ms"] == 1'700'000'000'123);
  CHECK(job["progress"].is_null());
  CHECK(job["failure"]["evidence"] == "a line\nanother");
  CHECK(job["headline"] == "rank 3 died \xef\xbf\xbd");
  CHECK(job["allocation"] == Json({{{"node", "n1"}, {"ranks", 8}}}));
  CHECK_FALSE(JobRow(FailedJob()).contains("failure"));
}

TEST_CASE("events are sentences with a weight") {
  const Json failed = EventJson(Changed(v1::JOB_FAILED, "five failures", "rank 3 died"));
  CHECK(failed["kind"] == "failed");
  CHECK(failed["level"] == "bad");
  CHECK(failed["text"] == "five failures; rank 3 died");
  CHECK(EventJson(Changed(v1::JOB_RECOVERING, "rank 3 died", "rank 3 died"))["text"] ==
        "rank 3 died");
  const std::string headline(200, 'x');
  const std::string cut = "five failures: " + headline.substr(0, 100) + "...";
  CHECK(EventJson(Changed(v1::JOB_FAILED, cut, headline))["text"] == cut);
  v1::Event asked;
  asked.mutable_desired_state_changed()->set_desired_state(v1::JOB_DESIRED_PAUSE);
  asked.mutable_desired_state_changed()->set_by("ada");
  CHECK(EventJson(asked)["text"] == "pause, by ada");
  const Json cancelled = EventJson(Changed(v1::JOB_CANCELLED, "cancelled by ada"));
  CHECK(cancelled["kind"] == "cancelled");
  CHECK(cancelled["text"] == "by ada");
  v1::Event placed;
  *placed.mutable_placed()->mutable_allocation() = FailedJob().allocation();
  CHECK(EventJson(placed)["allocation"] == Json({{{"node", "n1"}, {"ranks", 8}}}));
  v1::Event submitted;
  submitted.mutable_submitted()->set_name("night");
  CHECK(EventJson(submitted)["name"] == "night");
  v1::Event lost;
  lost.mutable_node_changed()->set_node("n2");
  lost.mutable_node_changed()->set_state(v1::NODE_LOST);
  lost.mutable_node_changed()->set_reason("silent for 10 s");
  CHECK(EventJson(lost)["level"] == "bad");
  CHECK(EventJson(lost)["text"] == "n2 is lost: silent for 10 s");
  CHECK_NOTHROW(JsonText(EventJson(v1::Event())));
}

TEST_CASE("nodes show the jobs that are on them") {
  v1::Cluster cluster;
  for (const char* name : {"n1", "n2"}) cluster.add_nodes()->set_name(name);
  const Json json = ClusterJson(cluster, {FailedJob()});
  CHECK(json["nodes"][0]["jobs"][0]["id"] == 12);
  CHECK(json["nodes"][0]["jobs"][0]["ranks"] == 8);
  CHECK(json["nodes"][0]["jobs"][0]["cpus"] == 24);
  CHECK(json["nodes"][1]["jobs"].empty());
}

TEST_CASE("a plan shows its mesh, its stages and their bytes") {
  v1::Plan plan;
  plan.mutable_mesh()->set_pipeline(100);
  plan.mutable_mesh()->set_data(2);
  plan.mutable_mesh()->set_tensor(1);
  plan.mutable_job()->mutable_model()->mutable_config()->set_num_hidden_layers(98);
  for (uint32_t i = 0; i < 100; ++i) {
    v1::StagePlan& stage = *plan.add_stages();
    stage.add_first_block(i);
    stage.add_end_block(i + 1);
    stage.set_arena_bytes(1000 + i);
    v1::Pool& pool = *stage.add_pools();
    pool.set_kind(v1::PARAMETER);
    pool.set_slots(1);
    pool.set_slot_bytes(600);
    v1::Pool& offloaded = *stage.add_pools();
    offloaded.set_kind(v1::MOMENT1);
    offloaded.set_place(i % 2 == 0 ? v1::HOST : v1::FILE);
    offloaded.set_slots(1);
    offloaded.set_slot_bytes(70);
  }
  const Json json = PlanJson(plan);
  CHECK(json["mesh"]["pipeline"] == 100);
  CHECK(json["stage_count"] == 100);
  REQUIRE(json["stages"].size() == 64);
  CHECK(json["stages"][0]["blocks"] == Json({"embedding"}));
  CHECK(json["stages"][63]["stage"] == 99);
  CHECK(json["stages"][63]["blocks"] == Json({"head"}));
  CHECK(json["stages"][1]["bytes"]["parameters"] == 600);
  CHECK(json["stages"][1]["bytes"]["other"] == 401);
  CHECK(json["stages"][1]["bytes"]["total"] == 1001);
  CHECK(json["stages"][0]["bytes"]["host"] == 70);
  CHECK(json["stages"][0]["bytes"]["file"] == 0);
  CHECK(json["stages"][1]["bytes"]["host"] == 0);
  CHECK(json["stages"][1]["bytes"]["file"] == 70);
}

TEST_CASE("few bytes that unfold to very many are no plan") {
  namespace io = google::protobuf::io;
  std::string bomb;
  {
    io::StringOutputStream out(&bomb);
    io::GzipOutputStream gzip(&out);
    void* piece = nullptr;
    for (int size = 0; gzip.ByteCount() <= (257 << 20);) {
      REQUIRE(gzip.Next(&piece, &size));
      std::memset(piece, 0, static_cast<size_t>(size));
    }
  }
  CHECK(bomb.size() < (1U << 20));
  CHECK(absl::IsResourceExhausted(ReadPlan(bomb).status()));
  CHECK(absl::IsDataLoss(ReadPlan("").status()));
  CHECK(absl::IsDataLoss(ReadPlan(bomb.substr(0, 1000)).status()));
  v1::Plan plan;
  plan.set_version(plan::kPlanVersion);
  plan.set_schedule("1f1b");
  const auto read = ReadPlan(plan::SerializePlan(plan));
  REQUIRE(read.ok());
  CHECK(read->schedule() == "1f1b");
}

TEST_CASE("texts of plans are kept as long as there is room") {
  PlanCache cache;
  CHECK(cache.Find(1, 1) == nullptr);
  cache.Put(1, 1, "one");
  cache.Put(1, 2, "two");
  CHECK(*cache.Find(1, 1) == "one");
  for (uint64_t job = 2; job <= 32; ++job) cache.Put(job, 1, "more");
  CHECK(cache.Find(1, 2) == nullptr);
  CHECK(*cache.Find(1, 1) == "one");  // was asked for later
  CHECK(cache.Find(2, 1) != nullptr);
}

}  // namespace trireme::dashboard
