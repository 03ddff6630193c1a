// What users may ask for, each for himself.
#include <grpcpp/create_channel.h>
#include <pwd.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "coordinator/job_store/forwarding_store.h"
#include "tests/coordinator/control_api/served_store.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::coordinator {
namespace {

using grpc::StatusCode;

grpc::Status Submit(ServedStore& served, const std::string& user, const std::string& id,
                    int64_t priority = 0) {
  const std::string text = served.folder() + "/text.txt";
  std::ofstream(text) << "the oars dip and rise in time, three banks of them, and again";
  const auto stub = served.StubOf(user);
  grpc::ClientContext context;
  served.Prepare(context, user);
  v1::SubmitRequest request;
  request.set_request_id(id);
  *request.mutable_job() = TinyJob(text);
  if (priority != 0) request.mutable_job()->mutable_resources()->set_priority(priority);
  v1::SubmitResponse response;
  return stub->Submit(&context, request, &response);
}

}  // namespace

TEST_CASE("control: a priority above 0 is refused to users, before anything is looked at") {
  ServedStore served;
  served.Serve();
  const grpc::Status denied = Submit(served, "ann", "one", 1);
  CHECK(denied.error_code() == StatusCode::PERMISSION_DENIED);
  CHECK(denied.error_message().find("role operator") != std::string::npos);
  for (const auto& [user, priority] :
       {std::pair{"ann", 0}, {"ann", -1}, {"ola", 100}, {"root", 100}}) {
    CAPTURE(user, priority);
    const grpc::Status taken =
        Submit(served, user, std::string(user) + std::to_string(100 + priority), priority);
    INFO(taken.error_message());
    CHECK(taken.ok());
  }
  const auto stub = served.StubOf("ann");
  grpc::ClientContext context;
  served.Prepare(context, "ann");
  v1::PreviewPlanRequest request;
  *request.mutable_job() = TinyJob(served.folder() + "/text.txt");
  request.mutable_job()->mutable_resources()->set_priority(1);
  v1::PreviewPlanResponse response;
  CHECK(stub->PreviewPlan(&context, request, &response).error_code() ==
        StatusCode::PERMISSION_DENIED);
}

TEST_CASE("control: caps hold users, but neither operators nor admins") {
  ServedStore served({}, {.queued_jobs = 2, .spec_bytes = 0});
  served.Serve();
  for (const std::string user : {"ann", "ola", "root"}) {
    CAPTURE(user);
    CHECK(Submit(served, user, "one").ok());
    CHECK(Submit(served, user, "two").ok());
    const grpc::Status third = Submit(served, user, "three");
    CHECK(third.ok() == (user != "ann"));
    if (third.ok()) continue;
    CHECK(third.error_code() == StatusCode::RESOURCE_EXHAUSTED);
    CHECK(third.error_message() ==
          "ann has 2 jobs that wait or are paused, as many as the daemon lets one user have "
          "(--user-queued-jobs 2); submit again when some have started, or cancel some");
    // A repeat of what was taken is answered as before.
    CHECK(Submit(served, user, "two").ok());
  }
  CHECK(Submit(served, "ben", "one").ok());
}

TEST_CASE("control: a token that is taken back ends its streams and its agent's link alone") {
  ServedStore served;
  served.AddJob(1, "ann");
  served.AddEvents(1, 1);
  served.Serve();
  const auto watch = [&](const std::string& user, grpc::ClientContext& context) {
    served.Prepare(context, user);
    return served.StubOf(user)->Watch(&context, v1::WatchRequest());
  };
  grpc::ClientContext of_ann, of_root, of_agent;
  const auto ann = watch("ann", of_ann), root = watch("root", of_root);
  v1::WatchResponse told;
  // Both are served by then, and wait for news.
  REQUIRE(ann->Read(&told));
  REQUIRE(root->Read(&told));
  served.Prepare(of_agent, "agent");
  const auto link = v1::AgentLink::NewStub(served.ChannelOf("agent"))->Connect(&of_agent);
  v1::FromAgent hello;
  hello.mutable_hello()->set_node("n1");
  REQUIRE(link->Write(hello));
  v1::ToAgent welcome;
  REQUIRE(link->Read(&welcome));

  served.TakeBack("ann");
  while (ann->Read(&told)) continue;
  const grpc::Status ended = ann->Finish();
  CHECK(ended.error_code() == StatusCode::UNAUTHENTICATED);
  CHECK(ended.error_message().find("the token of ann was taken back") != std::string::npos);
  // The others' go on: the root's is told of a job.
  REQUIRE(Submit(served, "ola", "one").ok());
  do {
    REQUIRE(root->Read(&told));
  } while (!told.has_event() || !told.event().has_submitted());
  of_root.TryCancel();

  served.TakeBack("agent");
  while (link->Read(&welcome)) continue;
  CHECK(link->Finish().error_code() == StatusCode::UNAUTHENTICATED);
}

// So that what is posted after it waits until the end of this.
class Busy {
 public:
  explicit Busy(TaskThread& thread) {
    thread.PostAnswer([this] {
      begun_.Notify();
      may_end_.WaitForNotification();
    });
    begun_.WaitForNotification();
  }
  ~Busy() { End(); }
  void End() {
    if (!may_end_.HasBeenNotified()) may_end_.Notify();
  }

 private:
  absl::Notification begun_, may_end_;
};

static bool Within60Seconds(const std::function<bool()>& holds) {
  for (int i = 0; i < 6000 && !holds(); ++i) absl::SleepFor(absl::Milliseconds(10));
  return holds();
}

TEST_CASE("control: what waits when its caller's token is taken back is not carried out") {
  ServedStore served;
  served.Serve();
  Busy busy(served.checker());
  auto waits = std::async(std::launch::async, [&] { return Submit(served, "ann", "one"); });
  REQUIRE(Within60Seconds([&] { return served.checker().waiting() == 1; }));
  served.TakeBack("ann");
  busy.End();
  CHECK(waits.get().error_code() == StatusCode::UNAUTHENTICATED);
  const auto found = served.store().FindRequest("ann", "one");
  REQUIRE(found.ok());
  CHECK_FALSE(found->has_value());
  CHECK(Submit(served, "ben", "one").ok());
}

TEST_CASE("control: a drain that waits when its admin's token is taken back is not carried out") {
  ServedStore served;
  v1::Node node;
  node.set_name("n1");
  Change change;
  change.nodes.push_back(node);
  REQUIRE(served.store().Commit(change).ok());
  served.Serve();
  Busy busy(served.reconciler_thread());
  auto waits = std::async(std::launch::async, [&] {
    const auto stub = served.StubOf("root");
    grpc::ClientContext context;
    served.Prepare(context, "root");
    v1::DrainRequest request;
    request.set_node("n1");
    request.set_reason("rack");
    v1::Node drained;
    return stub->Drain(&context, request, &drained);
  });
  REQUIRE(Within60Seconds([&] { return served.reconciler_thread().waiting() == 1; }));
  served.TakeBack("root");
  busy.End();
  CHECK(waits.get().error_code() == StatusCode::UNAUTHENTICATED);
  CHECK_FALSE(served.store().Nodes()->at(0).drained());
}

TEST_CASE("control: logs and files end with the token by which they were opened") {
  ServedStore served;
  v1::Job job = served.AddJob(1, "ann");
  job.mutable_status()->set_state(v1::JOB_RUNNING);
  job.mutable_status()->set_attempt_live(true);
  served.PutJob(job);
  const std::string logs = job.run_folder() + "/attempts/1/logs";
  std::filesystem::create_directories(logs);
  std::ofstream(logs + "/mpirun.log") << "begins\n";
  // More than a connection takes in before somebody reads.
  std::ofstream(job.run_folder() + "/metrics.jsonl").close();
  REQUIRE(truncate((job.run_folder() + "/metrics.jsonl").c_str(), off_t{1} << 30) == 0);
  served.Serve();
  const auto stub = served.StubOf("ann");
  grpc::ClientContext of_log, of_file;
  served.Prepare(of_log, "ann");
  served.Prepare(of_file, "ann");
  v1::LogsRequest log;
  log.set_job_id(1);
  log.set_rank(-1);
  log.set_follow(true);
  const auto follows = stub->Logs(&of_log, log);
  v1::LogsResponse line;
  REQUIRE(follows->Read(&line));
  v1::ReadFileRequest file;
  file.set_job_id(1);
  file.set_path("metrics.jsonl");
  const auto reads = stub->ReadFile(&of_file, file);
  v1::ReadFileResponse piece;
  REQUIRE(reads->Read(&piece));

  served.TakeBack("ann");
  while (follows->Read(&line)) continue;
  CHECK(follows->Finish().error_code() == StatusCode::UNAUTHENTICATED);
  while (reads->Read(&piece)) continue;
  CHECK(reads->Finish().error_code() == StatusCode::UNAUTHENTICATED);
}

static int ThreadsNamed(const std::string& name) {
  int count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(thread.path() / "comm"), found);
    count += found == name ? 1 : 0;
  }
  return count;
}

namespace {

// Forgets its jobs as soon as a repeat has been found.
class Forgetful : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  absl::StatusOr<std::optional<uint64_t>> FindRequest(const std::string& owner,
                                                      const std::string& request_id) override {
    auto found = ForwardingStore::FindRequest(owner, request_id);
    if (found.ok() && *found && forgets) {
      const absl::Status dropped = ForwardingStore::DropJobs({**found});
      if (!dropped.ok()) return dropped;
    }
    return found;
  }
  std::atomic<bool> forgets = false;
};

}  // namespace

TEST_CASE("control: a repeat whose job is forgotten meanwhile stores nothing") {
  auto own = std::make_unique<Forgetful>(*JobStore::Open(":memory:"));
  Forgetful& store = *own;
  ServedStore served({}, {}, {.name = "store reads"}, std::move(own));
  served.Serve();
  REQUIRE(Submit(served, "ann", "once").ok());
  REQUIRE(Submit(served, "ann", "once").ok());
  store.forgets = true;
  CHECK(Submit(served, "ann", "once").error_code() == StatusCode::ABORTED);
  CHECK(store.Jobs()->empty());
  CHECK(Submit(served, "ann", "once").ok());
  CHECK(store.Jobs()->size() == 1);
}

TEST_CASE("control: checks whose caller leaves make way for the others'") {
  ServedStore served;
  served.Serve();
  const std::string sparse = served.folder() + "/sparse.txt";
  std::ofstream(sparse).close();
  REQUIRE(truncate(sparse.c_str(), off_t{1} << 42) == 0);
  const auto stub = served.StubOf("ann");
  v1::PreviewPlanRequest request;
  *request.mutable_job() = TinyJob(sparse);
  // As many as there are threads for their file system.
  constexpr int kThreads = 4;
  std::vector<grpc::ClientContext> contexts(kThreads);
  std::vector<std::future<grpc::Status>> asks;
  for (grpc::ClientContext& context : contexts) {
    served.Prepare(context, "ann");
    asks.push_back(std::async(std::launch::async, [&] {
      v1::PreviewPlanResponse response;
      return stub->PreviewPlan(&context, request, &response);
    }));
  }
  REQUIRE(Within60Seconds([&] { return ThreadsNamed("checks") == kThreads; }));
  auto behind = std::async(std::launch::async, [&] { return Submit(served, "ben", "one"); });
  absl::SleepFor(absl::Milliseconds(100));
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (auto& ask : asks) CHECK(ask.get().error_code() == StatusCode::CANCELLED);
  const grpc::Status taken = behind.get();
  INFO(taken.error_message());
  CHECK(taken.ok());
}

TEST_CASE("control: who drains a node, by a token or the unix socket, is named") {
  ServedStore served;
  served.Serve();
  grpc::ClientContext of_agent;
  served.Prepare(of_agent, "agent");
  const auto link = v1::AgentLink::NewStub(served.ChannelOf("agent"))->Connect(&of_agent);
  v1::FromAgent hello;
  hello.mutable_hello()->set_node("n1");
  REQUIRE(link->Write(hello));
  v1::ToAgent welcome;
  REQUIRE(link->Read(&welcome));
  const auto by_whom = [&](const std::shared_ptr<grpc::Channel>& channel, const std::string& user) {
    grpc::ClientContext context;
    served.Prepare(context, user);
    v1::DrainRequest request;
    request.set_node("n1");
    request.set_reason("new disk");
    v1::Node node;
    const grpc::Status status = v1::Control::NewStub(channel)->Drain(&context, request, &node);
    INFO(status.error_message());
    CHECK(status.ok());
    CHECK(node.drained_unix_ns() > 0);
    return node.drained_by();
  };
  CHECK(by_whom(served.ChannelOf("root"), "root") == "root");
  const auto socket =
      grpc::CreateChannel("unix:" + served.socket(), grpc::InsecureChannelCredentials());
  const passwd* own = getpwuid(geteuid());
  REQUIRE(own != nullptr);
  CHECK(by_whom(socket, "") == std::string(own->pw_name) + " (unix user)");
  of_agent.TryCancel();
}

}  // namespace trireme::coordinator
