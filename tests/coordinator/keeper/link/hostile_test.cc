// Whoever dials may send anything, too much of it, or read nothing: the honest ranks do not notice.
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/coordinator/keeper/link/link_bench.h"
#include "trireme/v1/worker.grpc.pb.h"

namespace trireme::keeper {
namespace {

std::unique_ptr<v1::WorkerLink::Stub> StubOf(const LinkBench& bench) {
  return v1::WorkerLink::NewStub(
      grpc::CreateChannel("unix:" + bench.seat.socket, grpc::InsecureChannelCredentials()));
}

void SetLimit(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  context.set_wait_for_ready(true);
}

// Sends it and waits until the server has ended the stream.
grpc::StatusCode Report(const LinkBench& bench, const v1::RankStatus& status) {
  const auto stub = StubOf(bench);
  grpc::ClientContext context;
  SetLimit(context);
  v1::ReportResponse response;
  const auto writer = stub->Report(&context, &response);
  while (writer->Write(status)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return writer->Finish().error_code();
}

int Connect(const LinkBench& bench) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, bench.seat.socket.c_str(), sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

void CheckServes(const LinkBench& bench) {
  const auto slice = bench.Join(bench.Who(1));
  INFO(slice.status().ToString());
  CHECK(slice.ok());
}

TEST_CASE("worker link: wrong and oversized reports are refused and leave nothing") {
  LinkBench bench;
  bench.Listen();
  v1::RankStatus status = bench.Status(1, 4);
  status.set_attempt(2);
  CHECK(Report(bench, status) == grpc::StatusCode::FAILED_PRECONDITION);
  status = bench.Status(9, 4);
  CHECK(Report(bench, status) == grpc::StatusCode::FAILED_PRECONDITION);
  status = bench.Status(1, 4);
  status.mutable_rank()->set_position(std::string(300, 'x'));
  CHECK(Report(bench, status) == grpc::StatusCode::INVALID_ARGUMENT);
  status.mutable_rank()->set_position(std::string(1 << 20, 'x'));
  CHECK(Report(bench, status) == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(bench.Heard().ranks(1).position().empty());
  CheckServes(bench);
}

TEST_CASE("worker link: bytes that are no gRPC and connections that say nothing do no harm") {
  LinkBench bench;
  bench.Listen();
  std::vector<int> sockets;
  for (int count = 0; count < 20; ++count) sockets.push_back(Connect(bench));
  const std::string rubbish(100000, '\x5a');
  for (size_t index = 0; index < sockets.size(); index += 2) {
    (void)send(sockets[index], rubbish.data(), rubbish.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  CheckServes(bench);
  for (const int fd : sockets) close(fd);
  CheckServes(bench);
}

TEST_CASE("worker link: callers that never read are bounded") {
  LinkBench bench;
  bench.Listen();
  const auto stub = StubOf(bench);
  grpc::CompletionQueue queue;
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::JoinResponse>> reader;
    v1::JoinResponse response;
    grpc::Status status;
  };
  std::vector<std::unique_ptr<Call>> calls;
  for (int count = 0; count < 200; ++count) {
    calls.push_back(std::make_unique<Call>());
    calls.back()->reader = stub->PrepareAsyncJoin(&calls.back()->context, bench.Who(0), &queue);
    calls.back()->reader->StartCall();
  }
  CheckServes(bench);
  for (const auto& call : calls) call->context.TryCancel();
  CheckServes(bench);
  // What a call holds is given back when it has been read after all.
  for (const auto& call : calls) call->reader->Finish(&call->response, &call->status, call.get());
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
}

TEST_CASE("worker link: no more streams than ranks need are kept open") {
  LinkBench bench;
  bench.Listen();
  const auto stub = StubOf(bench);
  struct Stream {
    grpc::ClientContext context;
    v1::ReportResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::RankStatus>> writer;
  };
  constexpr size_t kOpened = 60;
  const size_t allowed = 2 * bench.seat.ranks_here + 16;
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t count = 0; count < kOpened; ++count) {
    streams.push_back(std::make_unique<Stream>());
    SetLimit(streams.back()->context);
    streams.back()->writer = stub->Report(&streams.back()->context, &streams.back()->response);
  }
  // A refusal is heard of by a write that fails.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (streams.size() > allowed && std::chrono::steady_clock::now() < until) {
    for (auto& stream : streams) {
      if (stream->writer->Write(bench.Status(0, 1))) continue;
      CHECK(stream->writer->Finish().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
      stream.reset();
    }
    streams.erase(std::remove(streams.begin(), streams.end(), nullptr), streams.end());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(streams.size() == allowed);
  for (const auto& stream : streams) {
    stream->context.TryCancel();
    stream->writer->Finish();
  }
  // Their places are free again as soon as the server has heard of it.
  bool served = false;
  for (int tries = 0; tries < 600 && !served; ++tries) {
    served = bench.Join(bench.Who(1)).ok();
    if (!served) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  CHECK(served);
}

TEST_CASE("worker link: a rank ends though its keeper stands still") {
  LinkBench bench;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, bench.seat.socket.c_str(), sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(fd, 8) == 0);  // and never accepts
  {
    const auto link = bench.Dial(bench.Who(0));
    const auto slice = link->Join(
        {.appear = std::chrono::milliseconds(100), .answer = std::chrono::milliseconds(300)});
    CHECK(slice.status().code() == absl::StatusCode::kUnavailable);
    link->StartReports([&] { return bench.Status(0, 1); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  close(fd);
}

}  // namespace
}  // namespace trireme::keeper
