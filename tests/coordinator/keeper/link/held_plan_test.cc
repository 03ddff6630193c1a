// A plan on a disk that does not answer: who joins waits, and nobody else. The file is a pipe,
// whose open blocks until somebody writes.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/whole_file.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/slice.h"
#include "tests/coordinator/keeper/link/link_bench.h"
#include "trireme/v1/worker.grpc.pb.h"

namespace trireme::keeper {
namespace {

class HeldPlan {
 public:
  explicit HeldPlan(const LinkBench& bench) : path_(bench.seat.plan_file) {
    unlink(path_.c_str());
    REQUIRE(mkfifo(path_.c_str(), 0600) == 0);
  }
  // An end is there for whoever reads, so that no thread stays.
  ~HeldPlan() { Answer(""); }
  // To the one that reads.
  void Answer(const std::string& bytes) {
    if (answered_) return;
    answered_ = true;
    // Nobody: ENXIO.
    int fd = -1;
    for (int i = 0; i < 6000 && fd < 0; ++i) {
      fd = open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      if (fd < 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    fcntl(fd, F_SETFL, 0);
    const auto written = write(fd, bytes.data(), bytes.size());
    CHECK(written == static_cast<ssize_t>(bytes.size()));
    close(fd);
  }

 private:
  const std::string path_;
  bool answered_ = false;
};

// Ranks that ask, each on a thread of its own.
class Joiners {
 public:
  Joiners(const LinkBench& bench, size_t count) : ends_(count), plans_(count) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, i, who = bench.Who(static_cast<uint32_t>(i % 4)),
                             address = "unix:" + bench.seat.socket] {
        const auto stub = v1::WorkerLink::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
        v1::JoinResponse response;
        ends_[i] = stub->Join(&context, who, &response);
        plans_[i] = std::move(*response.mutable_plan());
      });
    }
  }
  ~Joiners() { Ends(); }
  const std::vector<grpc::Status>& Ends() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return ends_;
  }
  const v1::Plan& plan(size_t joiner) const { return plans_[joiner]; }

 private:
  std::vector<grpc::Status> ends_;
  std::vector<v1::Plan> plans_;
  std::vector<std::thread> threads_;
};

TEST_CASE("worker link: a plan whose disk hangs holds up neither reports nor the keeper's end") {
  LinkBench bench;
  bench.Listen();
  const auto link = bench.Dial(bench.Who(1));
  HeldPlan held(bench);
  Joiners joiners(bench, 12);  // of whom gRPC has fewer threads
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // Others say how they fare, and the loop looks after its seats.
  link->StartReports([&] { return bench.Status(1, 5); });
  CHECK(bench.Await([](const auto& attempt) { return attempt.ranks(1).step() == 5; }));
  bench.Listen();
  bench.HangUp();
  for (const grpc::Status& end : joiners.Ends()) {
    INFO(end.error_message());
    CHECK((end.error_code() == grpc::StatusCode::CANCELLED ||
           end.error_code() == grpc::StatusCode::UNAVAILABLE));
  }
}

TEST_CASE("worker link: ranks that wait for their plan get it when it comes, read once for all") {
  LinkBench bench;
  bench.Listen();
  HeldPlan held(bench);
  Joiners joiners(bench, 4);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  held.Answer(plan::SerializePlan(bench.plan));
  for (const grpc::Status& end : joiners.Ends()) {
    INFO(end.error_message());
    CHECK(end.ok());
  }
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(plan::SerializePlan(joiners.plan(static_cast<size_t>(rank))) ==
          plan::SerializePlan(plan::SliceOf(bench.plan, rank)));
  }
}

}  // namespace
}  // namespace trireme::keeper
