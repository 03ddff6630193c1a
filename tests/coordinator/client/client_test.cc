// The client against a daemon that answers, is slow, refuses, cuts its streams and goes away.
#include "coordinator/client/client.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/coordinator/client/fake_control.h"

namespace trireme::client {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Client> Connect(const FakeControl& daemon, ClientOptions options = {}) {
  options.address = daemon.address();
  auto client = Client::Open(options);
  REQUIRE(client.ok());
  return *std::move(client);
}

v1::GetRequest JobNumber(uint64_t id) {
  v1::GetRequest request;
  request.set_job_id(id);
  return request;
}

v1::Job RunningJob(uint64_t id) {
  v1::Job job;
  job.set_id(id);
  job.mutable_status()->set_state(v1::JOB_RUNNING);
  job.mutable_status()->set_attempt(1);
  return job;
}

bool Holds(const absl::Status& status, const std::string& part) {
  INFO(status.ToString());
  return std::string(status.message()).find(part) != std::string::npos;
}

// Until its end or an error; `wait` in small pieces, as programs that hear Ctrl-C do.
template <typename Message, typename Take>
absl::Status Drain(Stream<Message>& stream, const Take& take) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < until) {
    Message message;
    const auto pull = stream.Next(message, milliseconds(20));
    if (!pull.ok()) return pull.status();
    if (*pull == Pull::kEnd) return absl::OkStatus();
    if (*pull == Pull::kMessage) take(message);
  }
  return absl::DeadlineExceededError("the stream did not end");
}

TEST_CASE("client: a call brings its answer and its token") {
  FakeControl daemon;
  daemon.Put(RunningJob(7));
  std::ofstream(daemon.folder() + "/token") << "s3cret\n";
  ClientOptions options;
  options.token_file = daemon.folder() + "/token";
  const auto job = Connect(daemon, options)->Call(JobNumber(7));
  REQUIRE(job.ok());
  CHECK(job->status().state() == v1::JOB_RUNNING);
  CHECK(daemon.authorization() == "Bearer s3cret");
  CHECK(absl::IsNotFound(Connect(daemon)->Call(JobNumber(8)).status()));
  CHECK(daemon.authorization().empty());
}

TEST_CASE("client: what the daemon finds wrong arrives with every field") {
  FakeControl daemon;
  FakeFaults faults;
  faults.before = [](const std::string&) { return absl::InvalidArgumentError("2 faults"); };
  for (const char* field : {"job.training.steps", "job.model.config"}) {
    v1::ErrorDetail detail;
    detail.set_field(field);
    detail.set_message("is wrong");
    faults.details.push_back(detail);
  }
  daemon.set_faults(faults);
  const auto answer = Connect(daemon)->Call(v1::SubmitRequest());
  CHECK(absl::IsInvalidArgument(answer.status()));
  CHECK(
      Holds(answer.status(), "2 faults\njob.training.steps: is wrong\njob.model.config: is wrong"));
}

TEST_CASE("client: an answer that does not come ends at the deadline") {
  FakeControl daemon;
  daemon.Put(RunningJob(1));
  std::atomic<bool> release = false;
  FakeFaults faults;
  faults.before = [&](const std::string&) {
    while (!release) std::this_thread::sleep_for(milliseconds(5));
    return absl::OkStatus();
  };
  daemon.set_faults(faults);
  ClientOptions options;
  options.timeout = milliseconds(200);
  const auto late = Connect(daemon, options)->Call(JobNumber(1));
  release = true;
  CHECK(absl::IsDeadlineExceeded(late.status()));
  CHECK(Holds(late.status(), "within 0.2 s"));
}

TEST_CASE("client: a daemon that says when to come back is asked again then") {
  FakeControl daemon;
  daemon.Put(RunningJob(1));
  std::atomic<int> refusals = 2;
  FakeFaults faults;
  faults.before = [&](const std::string&) {
    return refusals-- > 0 ? absl::ResourceExhaustedError("too often") : absl::OkStatus();
  };
  faults.details.emplace_back().set_retry_after_ms(5);
  daemon.set_faults(faults);
  CHECK(Connect(daemon)->Call(JobNumber(1)).ok());
  CHECK(daemon.calls().size() == 3);
  // Streams as well.
  daemon.Enter(1, v1::JOB_COMPLETED, "done");
  refusals = 2;
  v1::WatchRequest request;
  request.set_job_id(1);
  int events = 0;
  CHECK(Drain(*Connect(daemon)->Watch(request), [&](const v1::WatchResponse&) { ++events; }).ok());
  CHECK(events == 1);
  // It is not asked for ever, nor beyond the deadline, nor where no time is told.
  refusals = 1000;
  CHECK(absl::IsResourceExhausted(Connect(daemon)->Call(JobNumber(1)).status()));
  faults.details[0].set_retry_after_ms(3600000);
  daemon.set_faults(faults);
  CHECK(absl::IsResourceExhausted(Connect(daemon)->Call(JobNumber(1)).status()));
  faults.details.clear();
  daemon.set_faults(faults);
  const size_t before = daemon.calls().size();
  CHECK(absl::IsResourceExhausted(Connect(daemon)->Call(JobNumber(1)).status()));
  CHECK(daemon.calls().size() == before + 1);
}

TEST_CASE("client: where nobody listens the message says where and what to do") {
  FakeControl daemon;
  daemon.Stop();
  const auto answer = Connect(daemon)->Call(JobNumber(1));
  CHECK(absl::IsUnavailable(answer.status()));
  CHECK(Holds(answer.status(), "no coordinator answers at " + daemon.address()));
  CHECK(Holds(answer.status(), "triremed"));
  CHECK(Holds(answer.status(), "--coordinator"));
  const auto tcp = Client::Open({.address = "127.0.0.1:1"});
  REQUIRE(tcp.ok());
  CHECK(Holds((*tcp)->Call(JobNumber(1)).status(), "--ca-file"));
  // The daemon's own word that it cannot now is passed on as it is.
  daemon.Start();
  FakeFaults faults;
  faults.before = [](const std::string&) { return absl::UnavailableError("going down"); };
  faults.details.emplace_back().set_message("going down");
  daemon.set_faults(faults);
  CHECK(Connect(daemon)->Call(JobNumber(1)).status().message() == "going down");
}

TEST_CASE("client: options that cannot be used are refused before anything is sent") {
  const auto refused = [](const ClientOptions& options, const std::string& why) {
    const auto client = Client::Open(options);
    REQUIRE_FALSE(client.ok());
    CHECK(Holds(client.status(), why));
  };
  FakeControl daemon;
  const std::string token = daemon.folder() + "/token";
  std::ofstream(token) << "two words\n";
  refused({.address = "here"}, "HOST:PORT");
  refused({.address = daemon.address(), .token_file = token}, "without blanks");
  refused({.address = daemon.address(), .token_file = token + "s"}, "cannot read");
  std::ofstream(token) << "word\n";
  refused({.address = "head:7000", .token_file = token}, "for everybody to read");
  CHECK(Client::Open({.address = "127.0.0.1:7000", .token_file = token}).ok());
  refused({.address = "head:7000", .ca_file = token, .certificate_file = token}, "give both");
  refused({.address = "head:7000", .certificate_file = token, .key_file = token}, "--ca-file");
}

TEST_CASE("client: a watch that is cut again and again misses nothing and repeats nothing") {
  FakeControl daemon;
  daemon.Put(RunningJob(1));
  for (uint64_t step = 1; step <= 20; ++step) {
    v1::Event event;
    event.set_job_id(1 + step % 2);
    event.mutable_checkpointed()->set_step(step);
    daemon.Tell(event);
  }
  daemon.Enter(1, v1::JOB_COMPLETED, "done");
  FakeFaults faults;
  faults.repeat = true;
  // One message of each connection has been there before, so two are the least to get anywhere.
  faults.cut_after = 3;
  daemon.set_faults(faults);
  v1::WatchRequest request;
  request.set_job_id(1);
  const auto stream = Connect(daemon)->Watch(request);
  std::vector<uint64_t> steps;
  const absl::Status end = Drain(*stream, [&](const v1::WatchResponse& response) {
    steps.push_back(response.event().checkpointed().step());
  });
  CHECK(end.ok());
  CHECK(steps == std::vector<uint64_t>({2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 0}));
}

TEST_CASE("client: a restart of the daemon is a pause in its streams") {
  FakeControl daemon;
  daemon.Put(RunningJob(1));
  v1::Event event;
  event.set_job_id(1);
  event.mutable_checkpointed()->set_step(1);
  daemon.Tell(event);
  const auto client = Connect(daemon);
  v1::WatchRequest request;
  request.set_job_id(1);
  const auto stream = client->Watch(request);
  v1::WatchResponse first;
  REQUIRE(*stream->Next(first, std::chrono::seconds(60)) == Pull::kMessage);
  CHECK_FALSE(stream->interrupted());
  daemon.Stop();
  v1::WatchResponse none;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!stream->interrupted() && std::chrono::steady_clock::now() < until) {
    REQUIRE(*stream->Next(none, milliseconds(10)) == Pull::kNothing);
  }
  CHECK(stream->interrupted());
  daemon.Enter(1, v1::JOB_FAILED, "while nobody looked");
  daemon.Start();
  std::vector<std::string> reasons;
  CHECK(Drain(*stream, [&](const v1::WatchResponse& response) {
          reasons.push_back(response.event().state_changed().reason());
        }).ok());
  CHECK(reasons == std::vector<std::string>({"while nobody looked"}));
}

TEST_CASE("client: a stream gives up on a daemon that stays away, and at once where refused") {
  FakeControl daemon;
  ClientOptions options;
  options.reconnect_for = milliseconds(300);
  const auto client = Connect(daemon, options);
  FakeFaults faults;
  faults.before = [](const std::string&) { return absl::PermissionDeniedError("not yours"); };
  daemon.set_faults(faults);
  const auto nothing = [](const v1::WatchResponse&) {};
  CHECK(absl::IsPermissionDenied(Drain(*client->Watch({}), nothing)));
  CHECK(daemon.calls().size() == 1);
  daemon.Stop();
  const auto stream = client->Watch({});
  const absl::Status end = Drain(*stream, nothing);
  CHECK(absl::IsUnavailable(end));
  CHECK(Holds(end, "no coordinator answers"));
  v1::WatchResponse message;
  CHECK(stream->Next(message, milliseconds(0)).status() == end);
}

TEST_CASE("client: a log cut and repeated by the daemon comes whole and once") {
  FakeControl daemon;
  daemon.Put(RunningJob(1));
  std::string whole;
  for (int i = 0; i < 60; ++i) whole += std::to_string(i) + "\n";
  daemon.Append(1, 0, whole.substr(0, 100));
  FakeFaults faults;
  faults.repeat = true;
  faults.cut_after = 4;
  daemon.set_faults(faults);
  v1::LogsRequest request;
  request.set_job_id(1);
  request.set_follow(true);
  const auto read = [&](int64_t offset) {
    request.set_offset(offset);
    std::string text;
    bool grown = false;
    const auto stream = Connect(daemon)->Logs(request);
    CHECK(Drain(*stream, [&](const v1::LogsResponse& response) {
            text += response.data();
            if (grown) return;
            grown = true;
            if (daemon.job(1).status().state() != v1::JOB_RUNNING) return;
            daemon.Append(1, 0, whole.substr(100));
            daemon.Enter(1, v1::JOB_COMPLETED, "done");
          }).ok());
    return text;
  };
  CHECK(read(0) == whole);
  CHECK(read(31) == whole.substr(31));
  faults.repeat = false;
  daemon.set_faults(faults);
  CHECK(read(-50) == whole.substr(whole.size() - 50));
}

TEST_CASE("client: of a file cut and repeated comes what was asked for and no byte more") {
  FakeControl daemon;
  std::string whole;
  for (int i = 0; i < 40; ++i) whole += std::to_string(i) + "\n";
  daemon.PutFile("metrics.jsonl", whole);
  FakeFaults faults;
  faults.repeat = true;
  faults.cut_after = 2;
  daemon.set_faults(faults);
  const auto read = [&](int64_t offset, uint64_t most) {
    v1::ReadFileRequest request;
    request.set_path("metrics.jsonl");
    request.set_offset(offset);
    request.set_most_bytes(most);
    std::string text;
    const auto stream = Connect(daemon)->ReadFile(request);
    CHECK(Drain(*stream, [&](const v1::ReadFileResponse& part) {
            CHECK(part.offset() == static_cast<uint64_t>(offset) + text.size());
            text += part.data();
          }).ok());
    return text;
  };
  CHECK(read(0, 0) == whole);
  CHECK(read(17, 0) == whole.substr(17));
  // Also where the cut comes with the last byte.
  for (uint64_t most = 1; most <= 30; ++most) CHECK(read(5, most) == whole.substr(5, most));
}

TEST_CASE("client: an export that is interrupted is not begun again") {
  FakeControl daemon;
  FakeFaults faults;
  faults.cut_after = 2;
  daemon.set_faults(faults);
  int parts = 0;
  const auto stream = Connect(daemon)->Export({});
  CHECK(absl::IsUnavailable(Drain(*stream, [&](const v1::ExportResponse&) { ++parts; })));
  CHECK(parts == 2);
  CHECK(daemon.calls() == std::vector<std::string>({"Export"}));
}

TEST_CASE("client: the newest attempt is chosen once") {
  FakeControl daemon;
  daemon.Put(RunningJob(1));
  daemon.Append(1, 0, "first attempt, its log");
  daemon.Append(2, 0, "second attempt, another log altogether");
  FakeFaults faults;
  faults.cut_after = 1;
  daemon.set_faults(faults);
  v1::LogsRequest request;
  request.set_job_id(1);
  const auto stream = Connect(daemon)->Logs(request);
  std::string text;
  CHECK(Drain(*stream, [&](const v1::LogsResponse& response) {
          text += response.data();
          v1::Job job = daemon.job(1);
          job.mutable_status()->set_attempt(2);
          daemon.Put(job);
        }).ok());
  CHECK(text == "first attempt, its log");
}

}  // namespace
}  // namespace trireme::client
