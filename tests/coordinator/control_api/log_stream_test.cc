// Who follows an attempt that the store does not know (any more): one that was put back from a
// backup, under a job whose run folder has a later one.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "tests/coordinator/control_api/served_store.h"

namespace trireme::coordinator {
namespace {

using grpc::StatusCode;

// As of a backup: its second attempt, which has ended since; its nodes have not said so yet.
v1::Job AddOlderJob(ServedStore& served) {
  v1::Job job = served.AddJob(1, "ann");
  job.mutable_resources()->set_ranks(1);
  job.mutable_status()->set_state(v1::JOB_PLANNING);
  job.mutable_status()->set_attempt(2);
  job.mutable_status()->set_desired_state(v1::JOB_DESIRED_RUN);
  served.PutJob(job);
  return job;
}

class Follower {
 public:
  Follower(ServedStore& served, v1::Control::Stub& stub, uint32_t attempt, int64_t offset) {
    served.Prepare(context_, "ann");
    v1::LogsRequest request;
    request.set_job_id(1);
    request.set_attempt(attempt);
    request.set_offset(offset);
    request.set_follow(true);
    reader_ = stub.Logs(&context_, request);
  }
  // All that has come when `words` have, or at the end of the stream.
  std::string ReadUntil(const std::string& words) {
    v1::LogsResponse piece;
    while (text_.find(words) == std::string::npos && reader_->Read(&piece)) text_ += piece.data();
    return text_;
  }
  grpc::Status End() {
    v1::LogsResponse piece;
    while (reader_->Read(&piece)) text_ += piece.data();
    return reader_->Finish();
  }
  const std::string& text() const { return text_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::LogsResponse>> reader_;
  std::string text_;
};

// More than some looks at a log: who takes its end for that of the attempt has left by then.
void AwaitLooks() { absl::SleepFor(absl::Seconds(1)); }

void Cancel(ServedStore& served, v1::Control::Stub& stub) {
  grpc::ClientContext context;
  served.Prepare(context, "ann");
  v1::CancelRequest request;
  request.set_job_id(1);
  v1::Job job;
  REQUIRE(stub.Cancel(&context, request, &job).ok());
  REQUIRE(job.status().state() == v1::JOB_CANCELLED);
}

}  // namespace

TEST_CASE("control: who follows an attempt that a store put back from a backup lacks goes on") {
  ServedStore served;
  const v1::Job job = AddOlderJob(served);
  const std::string folder = job.run_folder() + "/attempts/4/logs";
  std::filesystem::create_directories(folder);
  served.Serve();
  const auto stub = served.StubOf("ann");
  // Before its rank has said anything, too.
  Follower early(served, *stub, 4, 0);
  AwaitLooks();
  std::ofstream log(folder + "/rank-0.log");
  log << "step 1\n" << std::flush;
  CHECK(early.ReadUntil("step 1\n") == "step 1\n");
  Follower back(served, *stub, 4, 5);
  CHECK(back.ReadUntil("1\n") == "1\n");
  AwaitLooks();
  log << "step 2\n" << std::flush;
  CHECK(early.ReadUntil("step 2\n") == "step 1\nstep 2\n");
  CHECK(back.ReadUntil("step 2\n") == "1\nstep 2\n");
  // Nobody will adopt it any more.
  Cancel(served, *stub);
  CHECK(early.End().ok());
  CHECK(back.End().ok());
  // Nor does who comes then wait.
  Follower late(served, *stub, 4, 0);
  CHECK(late.End().ok());
  CHECK(late.text() == "step 1\nstep 2\n");
}

TEST_CASE("control: who follows a job that has not begun hears its first attempt from its start") {
  ServedStore served;
  v1::Job job = AddOlderJob(served);
  job.mutable_status()->set_attempt(0);
  served.PutJob(job);
  served.Serve();
  const auto stub = served.StubOf("ann");
  Follower follower(served, *stub, 0, 0);
  AwaitLooks();
  // It counts before its node has made its folder.
  job.mutable_status()->set_attempt(1);
  job.mutable_status()->set_attempt_live(true);
  job.mutable_status()->set_state(v1::JOB_LAUNCHING);
  served.PublishJob(job);
  AwaitLooks();
  std::filesystem::create_directories(job.run_folder() + "/attempts/1/logs");
  std::ofstream log(job.run_folder() + "/attempts/1/logs/rank-0.log");
  log << "step 1\n" << std::flush;
  CHECK(follower.ReadUntil("step 1\n") == "step 1\n");
  job.mutable_status()->set_attempt_live(false);
  job.mutable_status()->set_state(v1::JOB_COMPLETED);
  served.PublishJob(job);
  CHECK(follower.End().ok());
}

TEST_CASE(
    "control: an offset before the end gives a log's last bytes, or all where there are fewer") {
  ServedStore served;
  v1::Job job = AddOlderJob(served);
  job.mutable_status()->set_state(v1::JOB_COMPLETED);
  served.PutJob(job);
  std::filesystem::create_directories(job.run_folder() + "/attempts/2/logs");
  std::ofstream(job.run_folder() + "/attempts/2/logs/rank-0.log") << "0123456789";
  served.Serve();
  const auto stub = served.StubOf("ann");
  for (const int64_t offset : {-1, -4, -10, -11, -100}) {
    INFO("offset " << offset);
    grpc::ClientContext context;
    served.Prepare(context, "ann");
    v1::LogsRequest request;
    request.set_job_id(1);
    request.set_offset(offset);
    const auto reader = stub->Logs(&context, request);
    v1::LogsResponse piece;
    const uint64_t first = offset < -10 ? 0 : static_cast<uint64_t>(10 + offset);
    REQUIRE(reader->Read(&piece));
    CHECK(piece.offset() == first);
    CHECK(piece.data() == std::string("0123456789").substr(first));
    CHECK_FALSE(reader->Read(&piece));
    CHECK(reader->Finish().ok());
  }
}

TEST_CASE("control: who follows an attempt that never was is told which there are") {
  ServedStore served;
  const v1::Job job = AddOlderJob(served);
  std::filesystem::create_directories(job.run_folder() + "/attempts/4/logs");
  served.Serve();
  const auto stub = served.StubOf("ann");
  const grpc::Status refused = Follower(served, *stub, 99, 0).End();
  CHECK(refused.error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK(refused.error_message() == "attempt: 99 is out of range, expected 1 to 2");
}

}  // namespace trireme::coordinator
