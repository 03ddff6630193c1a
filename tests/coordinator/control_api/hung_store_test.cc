// A store whose disk does not answer: who asks for what it alone has is told so, and all else goes
// on.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/coordinator/control_api/served_store.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::coordinator {
namespace {

using std::chrono::milliseconds;

// Of what a call must be given.
struct HeldCall {
  explicit HeldCall(const std::string& user) { ServedStore::Prepare(context, user); }
  grpc::ClientContext context;
};

template <typename Request, typename Response>
grpc::Status AskOf(v1::Control::Stub& stub,
                   grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                   uint64_t job_id) {
  HeldCall call("ann");
  Request request;
  request.set_job_id(job_id);
  Response response;
  return (stub.*method)(&call.context, request, &response);
}

template <typename Reader, typename Response>
grpc::Status EndOf(Reader reader, Response message) {
  while (reader->Read(&message)) continue;
  return reader->Finish();
}

grpc::Status WatchOf(v1::Control::Stub& stub, uint64_t job_id, const std::string& user = "ann") {
  HeldCall call(user);
  v1::WatchRequest request;
  request.set_job_id(job_id);
  request.set_no_follow(true);
  return EndOf(stub.Watch(&call.context, request), v1::WatchResponse());
}

grpc::Status ListOf(v1::Control::Stub& stub, bool live) {
  HeldCall call("ann");
  v1::ListRequest request;
  for (const auto state : {v1::JOB_PENDING, v1::JOB_PLANNING}) {
    if (live) request.add_states(state);
  }
  v1::ListResponse response;
  const grpc::Status status = stub.List(&call.context, request, &response);
  return status.ok() && response.jobs().empty()
             ? grpc::Status(grpc::StatusCode::NOT_FOUND, "no job is listed")
             : status;
}

// Whatever only the store can answer: a job that ended before the daemon began, events of long ago.
std::vector<std::function<grpc::Status(v1::Control::Stub&)>> AllThatNeedTheStore() {
  return {
      [](auto& stub) { return AskOf(stub, &v1::Control::Stub::Get, 1); },
      [](auto& stub) { return WatchOf(stub, 1); },
      [](auto& stub) { return WatchOf(stub, 0); },
      [](auto& stub) { return WatchOf(stub, 2); },  // which is here, but not its first events
      [](auto& stub) { return ListOf(stub, /*live=*/false); },
      [](auto& stub) { return AskOf(stub, &v1::Control::Stub::Cancel, 1); },
      [](auto& stub) { return AskOf(stub, &v1::Control::Stub::ListFiles, 1); },
      [](auto& stub) { return AskOf(stub, &v1::Control::Stub::ListCheckpoints, 1); },
      [](auto& stub) {
        HeldCall call("ann");
        v1::LogsRequest request;
        request.set_job_id(1);
        return EndOf(stub.Logs(&call.context, request), v1::LogsResponse());
      },
      [](auto& stub) {
        HeldCall call("ann");
        v1::ReadFileRequest request;
        request.set_job_id(1);
        return EndOf(stub.ReadFile(&call.context, request), v1::ReadFileResponse());
      },
      [](auto& stub) {
        HeldCall call("ann");
        v1::ExportRequest request;
        request.set_job_id(1);
        return EndOf(stub.Export(&call.context, request), v1::ExportResponse());
      },
  };
}

// Jobs 1, of ann, and 3, of ben, which have ended and stay in the store; 2 of ann waits.
void FillAndServe(ServedStore& served) {
  served.AddJob(1, "ann");
  v1::Job live = served.AddJob(2, "ann");
  live.mutable_status()->set_state(v1::JOB_PENDING);
  live.mutable_status()->set_attempt(0);
  live.mutable_resources()->set_ranks(1);
  served.PutJob(live);
  served.AddJob(3, "ben");
  // More than the table begins with.
  for (const uint64_t job : {1, 3, 2}) served.AddEvents(job, 1000);
  served.store().KeepOlder();
  served.Serve();
}

// One that has called already: it is connected.
std::shared_ptr<v1::Control::Stub> Connected(ServedStore& served) {
  std::shared_ptr<v1::Control::Stub> stub = served.StubOf("ann");
  CHECK(AskOf(*stub, &v1::Control::Stub::Get, 2).ok());
  return stub;
}

class Callers {
 public:
  explicit Callers(const std::shared_ptr<v1::Control::Stub>& stub) {
    const auto calls = AllThatNeedTheStore();
    ends_.resize(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      threads_.emplace_back([this, i, call = calls[i], stub] { ends_[i] = call(*stub); });
    }
  }
  ~Callers() { Ends(); }
  const std::vector<grpc::Status>& Ends() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return ends_;
  }

 private:
  std::vector<grpc::Status> ends_;
  std::vector<std::thread> threads_;
};

bool Submitted(v1::Control::Stub& stub, const std::string& text, const std::string& id) {
  HeldCall call("ann");
  v1::SubmitRequest request;
  request.set_request_id(id);
  *request.mutable_job() = TinyJob(text);
  v1::SubmitResponse response;
  const grpc::Status status = stub.Submit(&call.context, request, &response);
  UNSCOPED_INFO(status.error_message());
  return status.ok();
}

}  // namespace

TEST_CASE("a store whose disk hangs holds up who asks for what it alone has, and nobody else") {
  ServedStore served({}, {}, {.name = "store reads", .deadline = milliseconds(1000)});
  FillAndServe(served);
  const std::string text = served.folder() + "/text.txt";
  std::ofstream(text) << "the oars dip and rise in time, three banks of them, and again";
  HeldCall agent("agent");
  const auto link = v1::AgentLink::NewStub(served.ChannelOf("agent"))->Connect(&agent.context);
  v1::FromAgent word;
  word.mutable_hello()->set_node("n1");
  REQUIRE(link->Write(word));
  v1::ToAgent answer;
  REQUIRE(link->Read(&answer));

  const auto stub = Connected(served), other = Connected(served);
  served.store().Hold();
  Callers callers(other);
  served.store().AwaitWaiting(4);  // all threads that there are for it
  for (uint64_t round = 1; round <= 5; ++round) {
    CHECK(AskOf(*stub, &v1::Control::Stub::Get, 2).ok());
    CHECK(ListOf(*stub, /*live=*/true).ok());
    CHECK(Submitted(*stub, text, "request-" + std::to_string(round)));
    word.mutable_report()->set_number(round);
    REQUIRE(link->Write(word));
    while (link->Read(&answer) && answer.taken().number() != round) continue;
    CHECK(answer.taken().number() == round);
  }
  for (const grpc::Status& end : callers.Ends()) {
    INFO(end.error_code() << " " << end.error_message());
    CHECK((end.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
           end.error_code() == grpc::StatusCode::UNAVAILABLE));
    CHECK(end.error_message().find(served.folder() + "/jobs.db: ") == 0);
  }
  served.store().LetGo();
  // A thread that comes back serves again.
  bool found = false;
  for (int i = 0; i < 600 && !found; ++i) {
    found = AskOf(*stub, &v1::Control::Stub::Get, 1).ok();
    if (!found) std::this_thread::sleep_for(milliseconds(100));
  }
  CHECK(found);
  served.End();
}

TEST_CASE("a store whose disk hangs does not hold up the end of the daemon") {
  ServedStore served({}, {}, {.name = "store reads", .deadline = std::chrono::minutes(10)});
  FillAndServe(served);
  const auto stub = Connected(served);
  served.store().Hold();
  Callers callers(stub);
  served.store().AwaitWaiting(4);
  served.End();
  for (const grpc::Status& end : callers.Ends()) {
    INFO(end.error_message());
    // One that had not come by then finds nobody.
    CHECK(end.error_code() == grpc::StatusCode::UNAVAILABLE);
  }
  served.store().LetGo();
}

TEST_CASE("a watcher who leaves while the store is asked makes room when it has answered") {
  Limits limits;
  limits.most_streams_of_user = 1;
  ServedStore served(limits, {}, {.name = "store reads", .deadline = std::chrono::minutes(10)});
  FillAndServe(served);
  served.store().Hold();
  const auto stub = served.StubOf("ann");
  {
    HeldCall call("ann");
    v1::WatchRequest request;
    request.set_job_id(2);
    const auto reader = stub->Watch(&call.context, request);
    served.store().AwaitWaiting(1);
    call.context.TryCancel();
    CHECK(EndOf(reader.get(), v1::WatchResponse()).error_code() == grpc::StatusCode::CANCELLED);
  }
  served.store().LetGo();
  grpc::Status again;
  for (int i = 0; i < 600; ++i) {
    again = WatchOf(*stub, 2);
    if (again.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) break;
    std::this_thread::sleep_for(milliseconds(100));
  }
  INFO(again.error_message());
  CHECK(again.ok());
}

TEST_CASE("a watcher is told his own events in order while older jobs are in the store alone") {
  ServedStore served;
  FillAndServe(served);
  const auto stub = served.StubOf("ann");
  HeldCall call("ann");
  v1::WatchRequest request;
  request.set_no_follow(true);
  const auto reader = stub->Watch(&call.context, request);
  uint64_t last = 0;
  std::vector<size_t> of_job(4);
  v1::WatchResponse response;
  while (reader->Read(&response)) {
    if (!response.has_event()) continue;
    CHECK(response.event().sequence() > last);
    last = response.event().sequence();
    ++of_job[response.event().job_id()];
  }
  CHECK(reader->Finish().ok());
  CHECK(of_job == std::vector<size_t>{0, 1000, 1000, 0});
}

}  // namespace trireme::coordinator
