// The services as callers see them: rights, rates, streams, files.
#include <grpcpp/create_channel.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "coordinator/client/error_details.h"
#include "tests/coordinator/control_api/served_store.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::coordinator {
namespace {

namespace fs = std::filesystem;
using grpc::StatusCode;

grpc::Status Get(ServedStore& served, v1::Control::Stub& stub, const std::string& user) {
  grpc::ClientContext context;
  served.Prepare(context, user);
  v1::GetRequest request;
  request.set_job_id(1);
  v1::Job job;
  return stub.Get(&context, request, &job);
}

struct Read {
  grpc::Status status;
  std::string data;
};

Read ReadAll(ServedStore& served, const std::string& user, const v1::ReadFileRequest& request) {
  grpc::ClientContext context;
  served.Prepare(context, user);
  const auto stub = served.StubOf(user);
  const auto reader = stub->ReadFile(&context, request);
  Read read;
  v1::ReadFileResponse piece;
  while (reader->Read(&piece)) {
    if (read.data.empty() && request.offset() > 0) {
      CHECK(piece.offset() == static_cast<uint64_t>(request.offset()));
    }
    read.data += piece.data();
  }
  read.status = reader->Finish();
  return read;
}

v1::ReadFileRequest FileOf(uint64_t job, const std::string& path, int64_t offset = 0,
                           uint64_t most_bytes = 0) {
  v1::ReadFileRequest request;
  request.set_job_id(job);
  request.set_path(path);
  request.set_offset(offset);
  request.set_most_bytes(most_bytes);
  return request;
}

// Open until it is told to end; nothing of it is read unless asked for.
template <typename Response>
struct OpenStream {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<v1::Control::Stub> stub;
  std::unique_ptr<grpc::ClientReader<Response>> reader;
};

OpenStream<v1::WatchResponse> Watch(ServedStore& served, const std::string& user, uint64_t job,
                                    bool no_follow = false) {
  OpenStream<v1::WatchResponse> stream{std::make_unique<grpc::ClientContext>(), served.StubOf(user),
                                       nullptr};
  served.Prepare(*stream.context, user);
  v1::WatchRequest request;
  request.set_job_id(job);
  request.set_no_follow(no_follow);
  stream.reader = stream.stub->Watch(stream.context.get(), request);
  return stream;
}

}  // namespace

TEST_CASE("control: files of a job are read by its owner and admins") {
  ServedStore served;
  const v1::Job job = served.AddJob(1, "ann");
  std::string text;
  while (text.size() < 300000) text += "line " + std::to_string(text.size()) + "\n";
  std::ofstream(job.run_folder() + "/metrics.jsonl") << text;
  std::ofstream(job.run_folder() + "/private") << text;
  served.Serve();
  for (const std::string user : {"ann", "root"}) {
    const Read whole = ReadAll(served, user, FileOf(1, "metrics.jsonl"));
    CHECK(whole.status.ok());
    CHECK(whole.data == text);
  }
  CHECK(ReadAll(served, "ann", FileOf(1, "metrics.jsonl", 7, 100000)).data ==
        text.substr(7, 100000));
  CHECK(ReadAll(served, "ann", FileOf(1, "metrics.jsonl", -5)).data ==
        text.substr(text.size() - 5));
  CHECK(ReadAll(served, "ann", FileOf(1, "metrics.jsonl", INT64_MIN)).data == text);
  const Read beyond = ReadAll(served, "ann", FileOf(1, "metrics.jsonl", INT64_MAX, UINT64_MAX));
  CHECK(beyond.status.ok());
  CHECK(beyond.data.empty());
  const auto refused = [&](const std::string& user, const v1::ReadFileRequest& request) {
    return ReadAll(served, user, request).status.error_code();
  };
  CHECK(refused("ben", FileOf(1, "metrics.jsonl")) == StatusCode::PERMISSION_DENIED);
  CHECK(refused("eve", FileOf(1, "metrics.jsonl")) == StatusCode::UNAUTHENTICATED);
  CHECK(refused("", FileOf(1, "metrics.jsonl")) == StatusCode::UNAUTHENTICATED);
  CHECK(refused("ann", FileOf(2, "metrics.jsonl")) == StatusCode::NOT_FOUND);
  CHECK(refused("ann", FileOf(1, "private")) == StatusCode::NOT_FOUND);
  CHECK(refused("ann", FileOf(1, "../1/metrics.jsonl")) == StatusCode::NOT_FOUND);
  const auto listed = [&](const std::string& user, v1::ListFilesResponse* files) {
    grpc::ClientContext context;
    served.Prepare(context, user);
    v1::ListFilesRequest request;
    request.set_job_id(1);
    return served.StubOf(user)->ListFiles(&context, request, files);
  };
  v1::ListFilesResponse files;
  CHECK(listed("ann", &files).ok());
  REQUIRE(files.files_size() == 1);
  CHECK(files.files(0).path() == "metrics.jsonl");
  CHECK(files.files(0).bytes() == text.size());
  CHECK(listed("ben", &files).error_code() == StatusCode::PERMISSION_DENIED);
}

TEST_CASE("control: a damaged checkpoint is named where older ones are listed or exported") {
  ServedStore served;
  const v1::Job job = served.AddJob(1, "ann");
  const std::string root = job.run_folder() + "/checkpoints/";
  for (const char* name : {"step-00000007", "step-00000009"}) {
    fs::create_directories(root + name);
    fs::copy(TRIREME_SOURCE_DIR "/tests/checkpoint/fixtures/version_1/step-00000007", root + name);
  }
  fs::resize_file(root + "step-00000009/manifest.json", 100);
  served.Serve();
  const auto stub = served.StubOf("ann");
  grpc::ClientContext context;
  served.Prepare(context, "ann");
  v1::ListCheckpointsRequest request;
  request.set_job_id(1);
  v1::ListCheckpointsResponse list;
  REQUIRE(stub->ListCheckpoints(&context, request, &list).ok());
  REQUIRE(list.checkpoints_size() == 1);
  CHECK(list.checkpoints(0).path() == root + "step-00000007");
  REQUIRE(list.damaged_size() == 1);
  CHECK(list.damaged(0).rfind(root + "step-00000009: ", 0) == 0);
  for (const uint64_t step : {0, 7}) {
    grpc::ClientContext exporting;
    served.Prepare(exporting, "ann");
    v1::ExportRequest wanted;
    wanted.set_job_id(1);
    wanted.set_step(step);
    // No model is in it, so nothing but the first word comes of it.
    const auto reader = stub->Export(&exporting, wanted);
    std::vector<v1::ExportResponse> told(1);
    while (reader->Read(&told.back())) told.emplace_back();
    CHECK_FALSE(reader->Finish().ok());
    REQUIRE(told.front().passed_over_size() == (step == 0 ? 1 : 0));
    if (step == 0) CHECK(told.front().passed_over(0).rfind(root + "step-00000009: ", 0) == 0);
  }
}

TEST_CASE("control: who calls too often is told when to come back and holds up nobody") {
  Limits limits;
  limits.submits = {0.001, 1};
  limits.calls = {0.001, 3};
  ServedStore served(limits);
  served.AddJob(1, "ann");
  served.Serve();
  const auto ann = served.StubOf("ann");
  for (int call = 0; call < 3; ++call) CHECK(Get(served, *ann, "ann").ok());
  const grpc::Status late = Get(served, *ann, "ann");
  CHECK(late.error_code() == StatusCode::RESOURCE_EXHAUSTED);
  const uint64_t wait_ms = client::RetryAfterMs(late.error_details());
  CHECK(wait_ms > 900000);
  CHECK(wait_ms <= 1000000);
  CHECK(Get(served, *served.StubOf("root"), "root").ok());
  // Submissions are counted by themselves.
  const auto submit = [&] {
    grpc::ClientContext context;
    served.Prepare(context, "ann");
    v1::SubmitResponse response;
    return ann->Submit(&context, v1::SubmitRequest(), &response).error_code();
  };
  CHECK(submit() == StatusCode::INVALID_ARGUMENT);
  CHECK(submit() == StatusCode::RESOURCE_EXHAUSTED);
}

TEST_CASE("control: a repeat is answered as before when its files are gone") {
  ServedStore served;
  served.Serve();
  const auto ann = served.StubOf("ann");
  const std::string text = served.folder() + "/text";
  std::ofstream(text) << "to be or not to be, that is the question\n";
  const auto submit = [&](const std::string& id, v1::SubmitResponse& response) {
    grpc::ClientContext context;
    served.Prepare(context, "ann");
    v1::SubmitRequest request;
    request.set_request_id(id);
    *request.mutable_job() = TinyJob(text);
    const grpc::Status status = ann->Submit(&context, request, &response);
    INFO(status.error_message());
    return status.error_code();
  };
  v1::SubmitResponse first;
  REQUIRE(submit("one", first) == StatusCode::OK);
  CHECK_FALSE(first.repeated());
  fs::remove(text);
  v1::SubmitResponse again;
  CHECK(submit("one", again) == StatusCode::OK);
  CHECK(again.repeated());
  CHECK(again.job().id() == first.job().id());
  // A new submission does not do without the file.
  CHECK(submit("two", again) == StatusCode::NOT_FOUND);
}

TEST_CASE("control: streams are bounded for each user and in all") {
  Limits limits;
  limits.most_streams = 3;
  limits.most_streams_of_user = 2;
  ServedStore served(limits);
  served.AddJob(1, "ann");
  served.AddEvents(1, 1);
  served.Serve();
  v1::WatchResponse first;
  std::vector<OpenStream<v1::WatchResponse>> open;
  const auto refused = [&](const std::string& user) {
    auto stream = Watch(served, user, 0);
    CHECK_FALSE(stream.reader->Read(&first));
    return stream.reader->Finish();
  };
  for (const std::string user : {"ann", "ann", "root"}) {
    if (open.size() == 2) CHECK(refused("ann").error_code() == StatusCode::RESOURCE_EXHAUSTED);
    open.push_back(Watch(served, user, 0));
    REQUIRE(open.back().reader->Read(&first));
  }
  const grpc::Status in_all = refused("root");
  CHECK(in_all.error_code() == StatusCode::RESOURCE_EXHAUSTED);
  CHECK(in_all.error_message().find("too many streams") != std::string::npos);
  // One that ends makes room, when the server has heard of it.
  open.back().context->TryCancel();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool room = false;
  while (!room && std::chrono::steady_clock::now() < until) {
    auto stream = Watch(served, "root", 0, /*no_follow=*/true);
    room = stream.reader->Read(&first);
    stream.context->TryCancel();
  }
  CHECK(room);
  for (auto& stream : open) stream.context->TryCancel();
}

TEST_CASE("control: who looks for one's own among many events of others finds each once") {
  ServedStore served;
  served.AddJob(1, "ann");
  served.AddJob(2, "ben");
  served.AddEvents(2, 5);
  served.AddEvents(1, 30000);
  served.AddEvents(2, 5);
  served.Serve();
  for (const uint64_t job : {0, 2}) {
    auto stream = Watch(served, "ben", job, /*no_follow=*/true);
    std::vector<uint64_t> sequences;
    v1::WatchResponse response;
    while (stream.reader->Read(&response)) {
      CHECK(response.event().job_id() == 2);
      sequences.push_back(response.event().sequence());
    }
    CHECK(stream.reader->Finish().ok());
    CHECK(sequences == std::vector<uint64_t>({1, 2, 3, 4, 5, 30006, 30007, 30008, 30009, 30010}));
  }
}

TEST_CASE("control: who has no token is told nothing of events that are to come") {
  ServedStore served;
  served.Serve();
  const auto stub = served.StubOf("");
  for (const uint64_t job : {0, 1}) {
    grpc::ClientContext context;
    served.Prepare(context, "");
    v1::WatchRequest request;
    request.set_job_id(job);
    request.set_after_sequence(uint64_t{1} << 62);
    const auto reader = stub->Watch(&context, request);
    v1::WatchResponse response;
    CHECK_FALSE(reader->Read(&response));
    CHECK(reader->Finish().error_code() == StatusCode::UNAUTHENTICATED);
  }
}

TEST_CASE("control: who asks for events that were dropped is told which are left") {
  ServedStore served;
  served.AddJob(1, "ann");
  served.AddEvents(1, 20000);
  REQUIRE(served.store().DropEvents(15000, 100000).ok());
  served.Serve();
  for (const uint64_t job : {0, 1}) {
    const auto watch = [&](uint64_t after) {
      OpenStream<v1::WatchResponse> stream{std::make_unique<grpc::ClientContext>(),
                                           served.StubOf("ann"), nullptr};
      served.Prepare(*stream.context, "ann");
      v1::WatchRequest request;
      request.set_job_id(job);
      request.set_after_sequence(after);
      request.set_no_follow(true);
      stream.reader = stream.stub->Watch(stream.context.get(), request);
      uint64_t next = 5001;
      v1::WatchResponse response;
      while (stream.reader->Read(&response)) CHECK(response.event().sequence() == next++);
      const grpc::Status end = stream.reader->Finish();
      CHECK(end.ok() == (next == 20001));
      return end;
    };
    for (const uint64_t gone : {1, 4999}) {
      const grpc::Status end = watch(gone);
      CHECK(end.error_code() == StatusCode::OUT_OF_RANGE);
      CHECK(end.error_message().find("the oldest is 5001") != std::string::npos);
    }
    for (const uint64_t kept : {0, 5000}) CHECK(watch(kept).ok());
    const grpc::Status ahead = watch(20001);
    CHECK(ahead.error_code() == StatusCode::OUT_OF_RANGE);
    CHECK(ahead.error_message().find("the newest event is 20000") != std::string::npos);
  }
}

TEST_CASE("control: a node is one agent's until its lease is over") {
  ServedStore served;
  served.Serve();
  // Whoever may use the socket is an admin, who may be an agent.
  const auto stub = v1::AgentLink::NewStub(
      grpc::CreateChannel("unix:" + served.socket(), grpc::InsecureChannelCredentials()));
  struct Agent {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::FromAgent, v1::ToAgent>> line;
    v1::ToAgent heard;
  };
  const auto dial = [&](const std::string& boot_id, const std::string& state_folder,
                        const std::string& user = "") {
    auto agent = std::make_unique<Agent>();
    served.Prepare(agent->context, user);
    agent->line = stub->Connect(&agent->context);
    v1::FromAgent hello;
    hello.mutable_hello()->set_node("n1");
    hello.mutable_hello()->set_boot_id(boot_id);
    hello.mutable_hello()->set_state_folder(state_folder);
    agent->line->Write(hello);
    return agent;
  };
  const auto first = dial("one", "/a");
  REQUIRE(first->line->Read(&first->heard));
  CHECK(first->heard.has_welcome());
  // Of another boot, of another folder, and by another token, alone or with a boot of its own.
  for (const auto& other : {dial("two", "/a"), dial("one", "/b"), dial("one", "/a", "agent"),
                            dial("two", "/a", "agent")}) {
    CHECK_FALSE(other->line->Read(&other->heard));
    const grpc::Status refused = other->line->Finish();
    CHECK(refused.error_code() == StatusCode::ALREADY_EXISTS);
    CHECK(refused.error_message().find("--node") != std::string::npos);
  }
  // The agent started anew takes the former one's place.
  const auto next = dial("one", "/a");
  REQUIRE(next->line->Read(&next->heard));
  CHECK(next->heard.has_welcome());
  while (first->line->Read(&first->heard)) {
  }
  CHECK(first->line->Finish().error_code() == StatusCode::ABORTED);
  next->context.TryCancel();
  while (next->line->Read(&next->heard)) {
  }
  next->line->Finish();
}

TEST_CASE("control: a name is kept for longer where ranks of a silent agent may live") {
  struct Scene {
    bool live, fenced, same_agent;
    std::chrono::milliseconds lost_node_after;
    bool in;
    std::string second_boot = "2", second_user = {};
  };
  const std::chrono::milliseconds long_since(50), not_yet(600000), never(0);
  for (const Scene& scene :
       {Scene{false, false, false, not_yet, true},
        {true, true, false, not_yet, false},
        // They end, but not before the attempt has been replaced.
        {true, true, false, long_since, false},
        {true, true, true, long_since, false},
        // Silence does not end them: nobody else may have the name.
        {true, false, false, long_since, false},
        {true, true, false, never, false},
        // A machine that was started anew has none.
        {true, false, true, long_since, true},
        // The agent of the same ranks, by another token: once the lease is over.
        {true, true, true, long_since, true, "1", "agent"},
        {true, true, false, long_since, false, "1", "agent"}}) {
    ServedStore served;
    v1::Job job = served.AddJob(1, "ann");
    job.mutable_status()->set_attempt_live(scene.live);
    if (scene.fenced) job.mutable_fence()->set_attempt(job.status().attempt());
    job.add_allocation()->set_node("n1");
    served.PutJob(job);
    served.Serve(std::chrono::milliseconds(100), scene.lost_node_after);
    const auto stub = v1::AgentLink::NewStub(
        grpc::CreateChannel("unix:" + served.socket(), grpc::InsecureChannelCredentials()));
    bool in = false;
    for (const int turn : {1, 2}) {
      const std::string boot = turn == 1 ? "1" : scene.second_boot;
      grpc::ClientContext context;
      served.Prepare(context, turn == 1 ? "" : scene.second_user);
      const auto line = stub->Connect(&context);
      v1::FromAgent hello;
      hello.mutable_hello()->set_node("n1");
      hello.mutable_hello()->set_boot_id(boot);
      hello.mutable_hello()->set_agent_id(scene.same_agent ? "a" : "a" + std::to_string(turn));
      line->Write(hello);
      v1::ToAgent heard;
      in = line->Read(&heard);
      context.TryCancel();
      line->Finish();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    CAPTURE(scene.live, scene.fenced, scene.same_agent, scene.lost_node_after.count());
    CHECK(in == scene.in);
  }
}

TEST_CASE("control: a token that is bound to a node keeps no other") {
  ServedStore served;
  served.Serve();
  const auto stub = v1::AgentLink::NewStub(
      grpc::CreateChannel("unix:" + served.socket(), grpc::InsecureChannelCredentials()));
  for (const std::string node : {"n1", "n2"}) {
    grpc::ClientContext context;
    served.Prepare(context, "rack");
    const auto line = stub->Connect(&context);
    v1::FromAgent hello;
    hello.mutable_hello()->set_node(node);
    line->Write(hello);
    v1::ToAgent heard;
    CHECK(line->Read(&heard) == (node == "n1"));
    if (node == "n1") context.TryCancel();
    const grpc::Status end = line->Finish();
    CHECK(end.error_code() ==
          (node == "n1" ? StatusCode::CANCELLED : StatusCode::PERMISSION_DENIED));
  }
}

TEST_CASE("control: readers that never read hold up neither others nor the end") {
  ServedStore served;
  const v1::Job job = served.AddJob(1, "ann");
  std::ofstream(job.run_folder() + "/trace.json") << std::string(8 << 20, 'x');
  served.AddEvents(1, 20000);
  served.Serve();
  std::vector<OpenStream<v1::WatchResponse>> watchers;
  std::vector<OpenStream<v1::ReadFileResponse>> readers;
  for (int i = 0; i < 20; ++i) {
    watchers.push_back(Watch(served, "ann", 1));
    auto& reader = readers.emplace_back();
    reader.context = std::make_unique<grpc::ClientContext>();
    reader.stub = served.StubOf("ann");
    served.Prepare(*reader.context, "ann");
    reader.reader = reader.stub->ReadFile(reader.context.get(), FileOf(1, "trace.json"));
  }
  const auto stub = served.StubOf("ann");
  for (int call = 0; call < 20; ++call) CHECK(Get(served, *stub, "ann").ok());
  CHECK(ReadAll(served, "ann", FileOf(1, "trace.json")).data.size() == 8 << 20);
  for (auto& stream : watchers) stream.context->TryCancel();
  for (auto& stream : readers) stream.context->TryCancel();
}

}  // namespace trireme::coordinator
