// A mount that hangs under one job of ten: its own calls fail by its name, and nobody else's wait.
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/coordinator/daemon/ten_jobs.h"
#include "tests/skip.h"

namespace trireme::coordinator {
namespace {

const std::string kProgram = TRIREME_BINARY_DIR "/bin/triremed";

template <typename Message>
absl::Status Whole(std::unique_ptr<client::Stream<Message>> stream) {
  const absl::Time until = absl::Now() + absl::FromChrono(kTenJobsDeadline);
  Message message;
  while (absl::Now() < until) {
    const auto pull = stream->Next(message, std::chrono::milliseconds(100));
    if (!pull.ok()) return pull.status();
    if (*pull == client::Pull::kEnd) return absl::OkStatus();
  }
  return absl::DeadlineExceededError("no end of the stream in time");
}

// What somebody may ask about a job, each with its answer.
using Asked = std::function<absl::Status(client::Client&, uint64_t job_id)>;

absl::Status Files(client::Client& client, uint64_t job_id) {
  v1::ListFilesRequest request;
  request.set_job_id(job_id);
  return client.Call(request).status();
}

absl::Status Checkpoints(client::Client& client, uint64_t job_id) {
  v1::ListCheckpointsRequest request;
  request.set_job_id(job_id);
  return client.Call(request).status();
}

absl::Status File(client::Client& client, uint64_t job_id) {
  v1::ReadFileRequest request;
  request.set_job_id(job_id);
  request.set_path("metrics.jsonl");
  return Whole(client.ReadFile(request));
}

absl::Status Log(client::Client& client, uint64_t job_id) {
  v1::LogsRequest request;
  request.set_job_id(job_id);
  request.set_rank(-1);
  return Whole(client.Logs(request));
}

// There is no checkpoint, and that is an answer.
absl::Status Export(client::Client& client, uint64_t job_id) {
  v1::ExportRequest request;
  request.set_job_id(job_id);
  const absl::Status end = Whole(client.Export(request));
  return absl::IsNotFound(end) ? absl::OkStatus() : end;
}

void CheckNamed(const absl::Status& status, const std::string& folder) {
  INFO(status.ToString());
  CHECK((absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)));
  CHECK(status.message().find("the file system at " + folder) != std::string::npos);
}

// Those who ask for what hangs, at once and for more than there are threads.
class HungCallers {
 public:
  HungCallers(TenJobs& jobs, std::vector<Asked> asked) : ends_(asked.size()) {
    for (size_t i = 0; i < asked.size(); ++i) {
      threads_.emplace_back([this, &jobs, i, ask = std::move(asked[i])] {
        ends_[i] = ask(*jobs.Connect(), TenJobs::kJobs);
      });
    }
  }
  std::vector<absl::Status> Ends() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return ends_;
  }
  ~HungCallers() { Ends(); }

 private:
  std::vector<absl::Status> ends_;
  std::vector<std::thread> threads_;
};

// All that others may do is done in time.
void CheckOthers(TenJobs& jobs, client::Client& client, uint64_t job_id) {
  CAPTURE(job_id);
  CHECK(Files(client, job_id).ok());
  CHECK(Checkpoints(client, job_id).ok());
  CHECK(File(client, job_id).ok());
  CHECK(Log(client, job_id).ok());
  CHECK(Export(client, job_id).ok());
  const absl::Status previewed = jobs.Preview(client, job_id);
  INFO(previewed.ToString());
  REQUIRE(previewed.ok());
  v1::GetRequest get;
  get.set_job_id(job_id);
  CHECK(client.Call(get).ok());
  CHECK(client.Call(v1::ListRequest()).ok());
  CHECK(jobs.Page("/api/jobs") == 200);
  CHECK(jobs.Page("/api/jobs/" + std::to_string(job_id)) == 200);
  CHECK(jobs.agent().Report());
  // It is planned as well, and its node told.
  const auto submitted = jobs.Submit(client, job_id);
  INFO(submitted.status().ToString());
  REQUIRE(submitted.ok());
  REQUIRE(jobs.agent().AwaitAttempt(*submitted, 1));
}

std::string ReasonOf(client::Client& client, uint64_t job_id) {
  v1::GetRequest get;
  get.set_job_id(job_id);
  const auto job = client.Call(get);
  return job.ok() ? job->status().reason() : std::string(job.status().message());
}

}  // namespace

TEST_CASE("hung mount: under one job of ten, it holds up nobody else") {
  if (!MayHang()) TRIREME_SKIP("not here: root with /dev/fuse, who may mount what hangs");
  TenJobs jobs(kProgram);
  const auto client = jobs.Connect();
  CheckOthers(jobs, *client, 1);
  jobs.Hang();
  REQUIRE(jobs.hangs());
  const std::string run = jobs.run_folder(TenJobs::kJobs), data = jobs.data_folder(TenJobs::kJobs);

  HungCallers of_run(jobs, {Files, Checkpoints, File, Log, Files, File, Log, Checkpoints});
  HungCallers of_data(jobs, std::vector<Asked>(6, [&](client::Client& caller, uint64_t job_id) {
                        return jobs.Preview(caller, job_id);
                      }));
  std::atomic<int> page = -1;
  std::jthread browser([&] { page = jobs.Page("/api/jobs/10/metrics"); });
  for (uint64_t id = 1; id < TenJobs::kJobs; ++id) CheckOthers(jobs, *client, id);
  for (const absl::Status& end : of_run.Ends()) CheckNamed(end, run);
  for (const absl::Status& end : of_data.Ends()) CheckNamed(end, data);
  browser.join();
  CHECK(page != 0);
  CHECK(page != 200);
  CheckNamed(jobs.Submit(*client, TenJobs::kJobs).status(), data);
  for (uint64_t id = 1; id < 4; ++id) CheckOthers(jobs, *client, id);
}

TEST_CASE(
    "hung mount: a plan that it holds up holds up no other, says so, and comes when it ends") {
  if (!MayHang()) TRIREME_SKIP("not here: root with /dev/fuse, who may mount what hangs");
  TenJobs jobs(kProgram);
  const auto client = jobs.Connect();
  jobs.Hang();
  REQUIRE(jobs.hangs());
  // Its next attempt needs a plan.
  REQUIRE(jobs.agent().Report({TenJobs::kJobs}));
  for (uint64_t id = 1; id < 4; ++id) CheckOthers(jobs, *client, id);
  const std::string why = "its plan waits: " + jobs.run_folder(TenJobs::kJobs) +
                          ": the file system at " + jobs.run_folder(TenJobs::kJobs);
  const absl::Time until = absl::Now() + absl::FromChrono(kTenJobsDeadline);
  while (ReasonOf(*client, TenJobs::kJobs).find(why) != 0 && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(500));
    REQUIRE(jobs.agent().Report());
  }
  CHECK_THAT(ReasonOf(*client, TenJobs::kJobs), Catch::StartsWith(why));
  jobs.Answer();
  CHECK(jobs.agent().AwaitAttempt(TenJobs::kJobs, 2));
}

TEST_CASE("hung mount: under the jobs folder a daemon starts, and takes new jobs when it answers") {
  if (!MayHang()) TRIREME_SKIP("not here: root with /dev/fuse, who may mount what hangs");
  TenJobs jobs(kProgram);
  jobs.RestartWithHungJobsFolder();
  REQUIRE(jobs.hangs());
  const auto client = jobs.Connect();
  const auto listed = client->Call(v1::ListRequest());
  REQUIRE(listed.ok());
  CHECK(listed->jobs_size() == static_cast<int>(TenJobs::kJobs));
  CHECK(jobs.agent().Report());
  CHECK(jobs.Preview(*client, 1).ok());
  CheckNamed(jobs.Submit(*client, 1).status(), jobs.jobs_folder());
  jobs.Answer();
  const auto submitted = jobs.Submit(*client, 1);
  INFO(submitted.status().ToString());
  REQUIRE(submitted.ok());
  CHECK(*submitted > TenJobs::kJobs);
  CHECK(jobs.agent().AwaitAttempt(*submitted, 1));
}

}  // namespace trireme::coordinator
