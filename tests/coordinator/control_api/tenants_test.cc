// What users may ask for, each for himself.
#include <catch2/catch.hpp>
#include <fstream>

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

}  // namespace trireme::coordinator
