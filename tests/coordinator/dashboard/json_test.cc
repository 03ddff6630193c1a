// Messages and plans as a page reads them. What it makes of messages: dashboard_test.py.
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cmath>
#include <cstring>

#include "coordinator/dashboard/json_text.h"
#include "coordinator/dashboard/plan_json.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "runtime/report/message_json.h"
#include "tests/coordinator/dashboard/run_folder.h"
#include "trireme/v1/dashboard.pb.h"

namespace trireme::dashboard {
TEST_CASE("messages are JSON whatever bytes are in them") {
  v1::JobView view;
  view.mutable_job()->set_id(12);
  view.mutable_job()->set_submitted_unix_ns(1'700'000'000'123'456'789);
  view.mutable_job()->mutable_status()->set_state(v1::JOB_FAILED);
  view.mutable_job()->mutable_status()->mutable_failure()->set_headline("rank 3 died \xff");
  view.mutable_job()->mutable_progress()->set_loss(std::nan(""));
  const Json job = Parsed(report::MessageJson(view))["job"];
  CHECK(job["id"] == "12");
  CHECK(job["submitted_unix_ns"] == "1700000000123456789");
  CHECK(job["status"]["state"] == "JOB_FAILED");
  CHECK(job["status"]["attempt"] == 0);
  CHECK(job["status"]["failure"]["headline"].get<std::string>().starts_with("rank 3 died "));
  CHECK(job["progress"]["loss"] == "NaN");
  CHECK(job["allocation"] == Json::array());
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
    i % 2 == 0 ? stage.set_host_bytes(70) : stage.set_file_bytes(70);
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
