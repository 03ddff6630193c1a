// A store that fails: its codes are about its file, and mean something else where a job is asked
// for.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/job_store/forwarding_store.h"
#include "tests/coordinator/control_api/served_store.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::coordinator {
namespace {

// One of its calls fails while it is told to.
class FailingStore : public ForwardingStore {
 public:
  enum class At { kNowhere, kFindJob, kEvents, kFirst, kJobsBefore, kFindRequest, kNext, kCommit };

  explicit FailingStore(std::unique_ptr<JobStore> store) : ForwardingStore(std::move(store)) {}

  absl::StatusOr<std::optional<v1::Job>> FindJob(uint64_t id) override {
    if (at == At::kFindJob) return Failure();
    return ForwardingStore::FindJob(id);
  }
  absl::StatusOr<std::vector<v1::Event>> Events(const EventQuery& query) override {
    if (at == At::kEvents) return Failure();
    return ForwardingStore::Events(query);
  }
  absl::StatusOr<uint64_t> FirstSequence() override {
    if (at == At::kFirst) return Failure();
    return ForwardingStore::FirstSequence();
  }
  absl::StatusOr<std::vector<v1::Job>> JobsBefore(uint64_t id, size_t limit) override {
    if (at == At::kJobsBefore) return Failure();
    return ForwardingStore::JobsBefore(id, limit);
  }
  absl::StatusOr<std::optional<uint64_t>> FindRequest(const std::string& owner,
                                                      const std::string& request_id) override {
    if (at == At::kFindRequest) return Failure();
    return ForwardingStore::FindRequest(owner, request_id);
  }
  absl::StatusOr<uint64_t> NextJobId(uint64_t after) override {
    if (at == At::kNext) return Failure();
    return ForwardingStore::NextJobId(after);
  }
  absl::Status Commit(Change& change) override {
    if (at == At::kCommit) return Failure();
    return ForwardingStore::Commit(change);
  }

  std::atomic<At> at{At::kNowhere};
  std::atomic<absl::StatusCode> code{absl::StatusCode::kUnknown};

 private:
  absl::Status Failure() const { return {code, "jobs.db: as its disk says"}; }
};

using At = FailingStore::At;

class FailedCalls {
 public:
  explicit FailedCalls(ServedStore& served)
      : stub_(served.StubOf("ann")), text_(served.folder() + "/text.txt") {
    std::ofstream(text_) << "the oars dip and rise in time, three banks of them, and again";
  }

  grpc::Status Get() {
    v1::GetRequest request;
    request.set_job_id(1);
    v1::Job job;
    grpc::ClientContext context;
    ServedStore::Prepare(context, "ann");
    return stub_->Get(&context, request, &job);
  }
  grpc::Status Cancel() {
    v1::CancelRequest request;
    request.set_job_id(1);
    v1::Job job;
    grpc::ClientContext context;
    ServedStore::Prepare(context, "ann");
    return stub_->Cancel(&context, request, &job);
  }
  grpc::Status List() {
    v1::ListResponse response;
    grpc::ClientContext context;
    ServedStore::Prepare(context, "ann");
    return stub_->List(&context, v1::ListRequest(), &response);
  }
  // 0: of all jobs, whose owners only the store knows.
  grpc::Status Watch(uint64_t job_id) {
    v1::WatchRequest request;
    request.set_job_id(job_id);
    request.set_no_follow(true);
    grpc::ClientContext context;
    ServedStore::Prepare(context, "ann");
    const auto reader = stub_->Watch(&context, request);
    v1::WatchResponse response;
    while (reader->Read(&response)) continue;
    return reader->Finish();
  }
  grpc::Status Submit() {
    v1::SubmitRequest request;
    request.set_request_id("request-" + std::to_string(++submitted_));
    *request.mutable_job() = TinyJob(text_);
    v1::SubmitResponse response;
    grpc::ClientContext context;
    ServedStore::Prepare(context, "ann");
    return stub_->Submit(&context, request, &response);
  }

 private:
  const std::unique_ptr<v1::Control::Stub> stub_;
  const std::string text_;
  int submitted_ = 0;
};

// Jobs that ended before the daemon began, which stay in the store alone, and more events than the
// table begins with.
FailingStore& ServeFailing(std::unique_ptr<ServedStore>& served) {
  auto opened = JobStore::Open(":memory:");
  REQUIRE(opened.ok());
  auto failing = std::make_unique<FailingStore>(*std::move(opened));
  FailingStore& store = *failing;
  served = std::make_unique<ServedStore>(
      Limits(), UserCaps(), DiskCallsOptions{.name = "store reads"}, std::move(failing));
  served->AddJob(1, "ann");
  served->AddJob(2, "ben");
  for (const uint64_t job : {1, 2}) served->AddEvents(job, 1000);
  served->store().KeepOlder();
  served->Serve();
  return store;
}

}  // namespace

TEST_CASE(
    "a store that fails is told of as one that cannot be asked, but for one that is damaged") {
  std::unique_ptr<ServedStore> served;
  FailingStore& store = ServeFailing(served);
  FailedCalls calls(*served);
  // What is damaged does not heal: nobody is to try again by himself.
  const auto check = [&](const char* call, const grpc::Status& end) {
    INFO(call << ": " << end.error_code() << " " << end.error_message());
    const bool damaged = store.code == absl::StatusCode::kDataLoss;
    CHECK(end.error_code() ==
          (damaged ? grpc::StatusCode::DATA_LOSS : grpc::StatusCode::UNAVAILABLE));
    CHECK(end.error_message().find("jobs.db: as its disk says") != std::string::npos);
  };
  for (const auto code :
       {absl::StatusCode::kNotFound, absl::StatusCode::kPermissionDenied,
        absl::StatusCode::kFailedPrecondition, absl::StatusCode::kResourceExhausted,
        absl::StatusCode::kDataLoss, absl::StatusCode::kInternal, absl::StatusCode::kCancelled}) {
    CAPTURE(static_cast<int>(code));
    store.code = code;
    store.at = At::kFindJob;
    check("Get", calls.Get());
    check("Cancel", calls.Cancel());
    check("Watch of all", calls.Watch(0));
    store.at = At::kEvents;
    check("Watch", calls.Watch(1));
    store.at = At::kFirst;
    check("Watch", calls.Watch(1));
    store.at = At::kJobsBefore;
    check("List", calls.List());
    for (const At at : {At::kFindRequest, At::kNext, At::kCommit}) {
      store.at = at;
      check("Submit", calls.Submit());
    }
    store.at = At::kNowhere;
    CHECK(calls.Get().ok());
    CHECK(calls.Watch(0).ok());
  }
  const grpc::Status submitted = calls.Submit();
  CAPTURE(submitted.error_message());
  CHECK(submitted.ok());
  served->End();
}

// The daemon may find it at its next start.
TEST_CASE("the run folder of a job that a store may have after all is let be") {
  auto opened = JobStore::Open(":memory:");
  REQUIRE(opened.ok());
  auto failing = std::make_unique<FailingStore>(*std::move(opened));
  FailingStore& store = *failing;
  ServedStore served(Limits(), UserCaps(), DiskCallsOptions{.name = "store reads"},
                     std::move(failing));
  const auto released = std::make_shared<std::atomic<int>>(0);
  const auto next = std::make_shared<std::atomic<uint64_t>>(100);
  served.Serve(std::chrono::seconds(10), std::chrono::milliseconds(0),
               {.reserve = [next]() -> absl::StatusOr<uint64_t> { return ++*next; },
                .release = [released](uint64_t) { ++*released; }});
  FailedCalls calls(served);
  store.at = At::kCommit;
  for (const auto code : {absl::StatusCode::kDataLoss, absl::StatusCode::kUnavailable}) {
    store.code = code;
    CHECK_FALSE(calls.Submit().ok());
  }
  CHECK(*next == 102);
  // What comes after them on the same thread.
  store.at = At::kNowhere;
  CHECK(calls.Submit().ok());
  served.End();
  CHECK(*released == 0);
}

TEST_CASE("a store that fails takes no report, and each is answered all the same") {
  auto opened = JobStore::Open(":memory:");
  REQUIRE(opened.ok());
  auto failing = std::make_unique<FailingStore>(*std::move(opened));
  FailingStore& store = *failing;
  ServedStore served({}, {}, {.name = "store reads"}, std::move(failing));
  v1::Job job = served.AddJob(1, "ann");
  job.mutable_status()->set_state(v1::JOB_LAUNCHING);
  job.mutable_status()->set_attempt(1);
  job.mutable_status()->set_attempt_live(true);
  job.add_allocation()->set_node("n1");
  served.PutJob(job);
  store.at = At::kCommit;  // before the daemon's own turns can change the job
  served.Serve();
  grpc::ClientContext context;
  ServedStore::Prepare(context, "agent");
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto link = v1::AgentLink::NewStub(served.ChannelOf("agent"))->Connect(&context);
  v1::FromAgent word;
  word.mutable_hello()->set_node("n1");
  REQUIRE(link->Write(word));
  v1::ToAgent answer;
  REQUIRE(link->Read(&answer));
  CHECK(answer.has_welcome());
  // That all ranks run would be news.
  v1::AttemptReport& attempt = *word.mutable_report()->add_attempts();
  attempt.set_job_id(1);
  attempt.set_attempt(1);
  attempt.set_phase(v1::ATTEMPT_RUNNING);
  for (uint64_t number = 1; number <= 3; ++number) {
    word.mutable_report()->set_number(number);
    REQUIRE(link->Write(word));
    do {
      REQUIRE(link->Read(&answer));
      CHECK_FALSE(answer.has_taken());
    } while (answer.what_case() != v1::ToAgent::WHAT_NOT_SET);
  }
  // In the node's own line, behind its reports: owners take turns.
  std::promise<void> heard;
  REQUIRE(served.reconciler_thread()
              .Post([&heard] { heard.set_value(); }, std::string(1, '\0') + "n1")
              .ok());
  heard.get_future().wait();
  store.at = At::kNowhere;
  word.mutable_report()->set_number(4);
  REQUIRE(link->Write(word));
  while (link->Read(&answer) && !answer.has_taken()) continue;
  CHECK(answer.taken().number() == 4);
  served.End();
}

}  // namespace trireme::coordinator
