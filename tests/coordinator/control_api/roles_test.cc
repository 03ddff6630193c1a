// Every call of the API with every role: who is let in stands in one table, and a call without an
// entry there is a fault.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/coordinator/control_api/served_store.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::coordinator {
namespace {

// Who calls for each column of the table: nobody, a token that is not known, one of the role agent
// whose user is called as the job's owner is, a submitter of other jobs, the job's owner, an
// operator, an admin.
constexpr const char* kCallers[] = {"", "eve", "agent", "ben", "ann", "ola", "root"};

struct Call {
  std::string method;
  google::protobuf::MessageLite* request;
  // A letter for each of kCallers: U not known (UNAUTHENTICATED), D denied (PERMISSION_DENIED), L
  // let in, whatever is answered then.
  std::string rights;
};

// Job 1 is ann's and has ended.
template <typename Request>
Request OfJob() {
  Request request;
  request.set_job_id(1);
  return request;
}

struct Requests {
  v1::SubmitRequest submit;
  v1::GetRequest get = OfJob<v1::GetRequest>();
  v1::ListRequest list;
  v1::WatchRequest watch_all;
  v1::WatchRequest watch = OfJob<v1::WatchRequest>();
  v1::LogsRequest logs = OfJob<v1::LogsRequest>();
  v1::CancelRequest cancel = OfJob<v1::CancelRequest>();
  v1::PauseRequest pause = OfJob<v1::PauseRequest>();
  v1::ResumeRequest resume = OfJob<v1::ResumeRequest>();
  v1::PreviewPlanRequest preview;
  v1::ListCheckpointsRequest checkpoints = OfJob<v1::ListCheckpointsRequest>();
  v1::ExportRequest exported = OfJob<v1::ExportRequest>();
  v1::ListFilesRequest files = OfJob<v1::ListFilesRequest>();
  v1::ReadFileRequest file = OfJob<v1::ReadFileRequest>();
  v1::DrainRequest drain;
  v1::UndrainRequest undrain;
  v1::AdoptNodeRequest adopt;
  v1::GetClusterRequest cluster;
  v1::OpenDashboardRequest dashboard;
  v1::BackupRequest backup;
  v1::FromAgent hello;

  Requests() {
    watch_all.set_no_follow(true);
    watch.set_no_follow(true);
    hello.mutable_hello()->set_node("n1");
  }
};

std::vector<Call> Table(Requests& of) {
  return {
      {"Control/Submit", &of.submit, "UUDLLLL"},
      {"Control/Get", &of.get, "UUDDLDL"},
      {"Control/List", &of.list, "UUDLLLL"},
      {"Control/Watch", &of.watch_all, "UUDLLLL"},
      {"Control/Watch", &of.watch, "UUDDLDL"},
      {"Control/Logs", &of.logs, "UUDDLDL"},
      {"Control/Cancel", &of.cancel, "UUDDLDL"},
      {"Control/Pause", &of.pause, "UUDDLDL"},
      {"Control/Resume", &of.resume, "UUDDLDL"},
      {"Control/PreviewPlan", &of.preview, "UUDLLLL"},
      {"Control/ListCheckpoints", &of.checkpoints, "UUDDLDL"},
      {"Control/Export", &of.exported, "UUDDLDL"},
      {"Control/ListFiles", &of.files, "UUDDLDL"},
      {"Control/ReadFile", &of.file, "UUDDLDL"},
      {"Control/Drain", &of.drain, "UUDDDDL"},
      {"Control/Undrain", &of.undrain, "UUDDDDL"},
      {"Control/AdoptNode", &of.adopt, "UUDDDDL"},
      {"Control/GetCluster", &of.cluster, "UUDLLLL"},
      {"Control/OpenDashboard", &of.dashboard, "UUDLLLL"},
      {"Control/Backup", &of.backup, "UUDDDDL"},
      {"AgentLink/Connect", &of.hello, "UULDDDL"},
  };
}

// By its name alone, whatever kind of call it is: on the wire each is a stream of messages in both
// directions.
grpc::StatusCode CodeOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& user,
                        const Call& call) {
  grpc::ClientContext context;
  ServedStore::Prepare(context, user);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const auto stream = stub.PrepareCall(&context, "/trireme.v1." + call.method, &queue);
  // One operation is under way at a time; the call's deadline ends it.
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  stream->StartCall(nullptr);
  done();
  const grpc::Slice bytes(call.request->SerializeAsString());
  stream->WriteLast(grpc::ByteBuffer(&bytes, 1), grpc::WriteOptions(), nullptr);
  done();
  grpc::ByteBuffer answer;
  do {
    stream->Read(&answer, nullptr);
  } while (done());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  done();
  return status.error_code();
}

char RightOf(grpc::StatusCode code) {
  // Nothing of ours: no such call, or no answer.
  if (code == grpc::StatusCode::UNIMPLEMENTED || code == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return '?';
  }
  if (code == grpc::StatusCode::UNAUTHENTICATED) return 'U';
  return code == grpc::StatusCode::PERMISSION_DENIED ? 'D' : 'L';
}

}  // namespace

TEST_CASE("roles: each call lets in whom its entry in the table says and nobody else") {
  ServedStore served;
  served.AddJob(1, "ann");
  served.Serve();
  Requests requests;
  for (const Call& call : Table(requests)) {
    CAPTURE(call.method);
    std::string rights;
    for (const char* caller : kCallers) {
      rights += RightOf(CodeOf(served.ChannelOf(caller), caller, call));
    }
    CHECK(rights == call.rights);
    // The daemon's own user is an admin; with a token he is whom that names.
    const auto socket =
        grpc::CreateChannel("unix:" + served.socket(), grpc::InsecureChannelCredentials());
    CHECK(RightOf(CodeOf(socket, "", call)) == 'L');
    CHECK(RightOf(CodeOf(socket, "agent", call)) == call.rights[2]);
  }
}

TEST_CASE("roles: each call of the API has its entry") {
  Requests requests;
  std::set<std::string> listed;
  for (const Call& call : Table(requests)) listed.insert(call.method);
  std::set<std::string> served;
  for (const google::protobuf::FileDescriptor* file :
       {v1::GetRequest::descriptor()->file(), v1::FromAgent::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const google::protobuf::ServiceDescriptor& service = *file->service(i);
      for (int k = 0; k < service.method_count(); ++k) {
        served.insert(service.name() + "/" + service.method(k)->name());
      }
    }
  }
  CHECK(listed == served);
}

TEST_CASE("roles: people see their own jobs, events and progress alone, an agent's token none") {
  ServedStore served;
  // What has ended makes no progress.
  for (v1::Job job : {served.AddJob(1, "ann"), served.AddJob(2, "ben")}) {
    job.mutable_status()->set_state(v1::JOB_PAUSED);
    served.PutJob(job);
  }
  served.AddEvents(1, 3);
  served.AddEvents(2, 2);
  served.Serve();
  for (const uint64_t job : {1, 2}) served.PutProgress(job, 7);
  const std::map<std::string, std::pair<std::set<uint64_t>, size_t>> expected = {
      {"ann", {{1}, 3}}, {"ben", {{2}, 2}}, {"root", {{1, 2}, 5}}, {"agent", {{}, 0}}};
  for (const auto& [user, sees] : expected) {
    CAPTURE(user);
    const auto stub = served.StubOf(user);
    grpc::ClientContext context;
    served.Prepare(context, user);
    v1::ListResponse listed;
    const grpc::Status status = stub->List(&context, v1::ListRequest(), &listed);
    CHECK(status.ok() == (user != "agent"));
    std::set<uint64_t> jobs;
    for (const v1::Job& job : listed.jobs()) jobs.insert(job.id());
    CHECK(jobs == sees.first);
    grpc::ClientContext watching;
    served.Prepare(watching, user);
    v1::WatchRequest request;
    request.set_no_follow(true);
    const auto reader = stub->Watch(&watching, request);
    v1::WatchResponse told;
    size_t events = 0;
    std::set<uint64_t> moved;
    while (reader->Read(&told)) {
      if (told.has_progress()) moved.insert(told.progress().job_id());
      if (told.has_event()) events += sees.first.contains(told.event().job_id()) ? 1 : 100;
    }
    CHECK(events == sees.second);
    CHECK(moved == sees.first);
    CHECK(reader->Finish().ok() == (user != "agent"));
  }
}

}  // namespace trireme::coordinator
