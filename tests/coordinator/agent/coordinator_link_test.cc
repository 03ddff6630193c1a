// An agent dials for ever, and each time looks anew at whose the default socket is.
#include "coordinator/agent/coordinator_link.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/skip.h"
#include "tests/temporary_folder.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::agent {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Whoever listens somewhere without a word.
class Ear {
 public:
  explicit Ear(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(fd_, 16) == 0);
  }
  ~Ear() {
    for (const int caller : callers_) close(caller);
    close(fd_);
  }
  Ear(const Ear&) = delete;
  Ear& operator=(const Ear&) = delete;
  // Somebody has dialled since the last call; hangs up.
  bool Heard() const {
    const int caller = accept(fd_, nullptr, nullptr);
    if (caller >= 0) close(caller);
    return caller >= 0;
  }
  // Greets those who have dialled since the last call as gRPC does; how many there were so far.
  size_t Greeted() {
    constexpr char kSettings[9] = {0, 0, 0, 4};  // an empty frame of these, RFC 9113, 4.1 and 6.5
    for (int caller = 0; (caller = accept(fd_, nullptr, nullptr)) >= 0;) {
      callers_.push_back(caller);
      CHECK(write(caller, kSettings, sizeof kSettings) == sizeof kSettings);
    }
    return callers_.size();
  }

 private:
  const int fd_;
  std::vector<int> callers_;
};

bool Await(CoordinatorLink& link, const std::function<bool()>& done) {
  const auto limit = Clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (Clock::now() > limit) return false;
    link.Poll(Clock::now());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

TEST_CASE("coordinator link: what another user has put at the default socket is not dialled") {
  if (geteuid() != 0) TRIREME_SKIP("not here: root, who can give files away");
  const tests::TemporaryFolder runtime;
  fs::permissions(runtime.path(), fs::perms::all | fs::perms::sticky_bit);  // as /tmp
  setenv("XDG_RUNTIME_DIR", runtime.path().c_str(), 1);
  const std::string folder = runtime / "trireme", socket = folder + "/triremed.sock";
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  const auto link = CoordinatorLink::Open({}, {});
  REQUIRE(link.ok());
  {
    const Ear own(socket);
    CHECK(Await(**link, [&] { return own.Heard(); }));
  }
  fs::rename(folder, folder + "-before");
  fs::create_directory(folder);
  const Ear other(socket);
  REQUIRE(chown(folder.c_str(), 65534, 65534) == 0);
  CHECK(Await(**link, [&] { return absl::IsPermissionDenied((*link)->state()); }));
  CHECK_FALSE(other.Heard());
  // It is his no more.
  REQUIRE(chown(folder.c_str(), 0, 0) == 0);
  CHECK(Await(**link, [&] { return other.Heard(); }));
  unsetenv("XDG_RUNTIME_DIR");
}

// Seconds that nobody has to wait for: the link counts by what it is told.
class Turns {
 public:
  explicit Turns(CoordinatorLink& link) : link_(link) {}

  bool Poll() { return link_.Poll(now_); }
  void Pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now_ += std::chrono::seconds(1);
      Poll();
    }
  }
  void StandStill(std::chrono::minutes time) {
    now_ += time;
    Poll();
  }
  // While no such second passes.
  bool Await(const std::function<bool()>& done) {
    const auto limit = Clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (Clock::now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  bool Greeted() {
    return Await([this] { return Poll(); });
  }

 private:
  CoordinatorLink& link_;
  Clock::time_point now_ = Clock::now();
};

TEST_CASE("coordinator link: one that says nothing is left, and dialled again") {
  const tests::TemporaryFolder folder;
  const std::string address = "unix:" + folder / "mute.sock";
  Ear mute(folder / "mute.sock");
  const auto link = CoordinatorLink::Open({.address = address}, {});
  REQUIRE(link.ok());
  Turns turns(**link);
  turns.Poll();
  CHECK(turns.Await([&] { return mute.Greeted() == 1; }));
  turns.Pass(60);
  CHECK((*link)->failures() == 0);
  // No timer of gRPC's needs to come for it.
  turns.Pass(1);
  CHECK((*link)->failures() == 1);
  CHECK((*link)->state().message() ==
        "the coordinator at " + address + " has not answered our dial for a minute");
  // Not over the same connection, on which nothing comes.
  turns.Pass(1);
  CHECK(turns.Await([&] { return mute.Greeted() == 2; }));
  CHECK((*link)->failures() == 1);
}

TEST_CASE("coordinator link: an agent that has stood still listens before it leaves") {
  const tests::TemporaryFolder folder;
  const Ear mute(folder / "mute.sock");
  const auto link = CoordinatorLink::Open({.address = "unix:" + folder / "mute.sock"}, {});
  REQUIRE(link.ok());
  Turns turns(**link);
  turns.Poll();
  turns.StandStill(std::chrono::minutes(10));
  turns.Pass(50);
  CHECK((*link)->failures() == 0);
  turns.Pass(10);
  CHECK((*link)->failures() == 1);
}

// Welcomes everybody, and does with the reports as it is told.
class Desk : public v1::AgentLink::Service {
 public:
  using Line = grpc::ServerReaderWriter<v1::ToAgent, v1::FromAgent>;
  // Of a report: `session` counts from 0. False: hangs up.
  using Hear = std::function<bool(int session, uint64_t number, Line& line)>;

  explicit Desk(Hear hear, const grpc::Status& refusal = grpc::Status::OK)
      : hear_(std::move(hear)), refusal_(refusal) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~Desk() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "unix:" + folder_ / "desk.sock"; }
  grpc::Status Connect(grpc::ServerContext* /*context*/, Line* line) override {
    const int session = sessions_++;
    v1::FromAgent said;
    if (!line->Read(&said) || !refusal_.ok()) return refusal_;
    v1::ToAgent answer;
    answer.mutable_welcome();
    line->Write(answer);
    while (line->Read(&said)) {
      if (!hear_(session, said.report().number(), *line)) break;
    }
    return grpc::Status::OK;
  }

 private:
  const tests::TemporaryFolder folder_;
  const Hear hear_;
  const grpc::Status refusal_;
  std::atomic<int> sessions_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

void SayTaken(Desk::Line& line, uint64_t number) {
  v1::ToAgent answer;
  answer.mutable_taken()->set_number(number);
  line.Write(answer);
}

TEST_CASE("coordinator link: one that is asked nothing may be quiet, one that is asked may not") {
  const Desk desk([](int, uint64_t, Desk::Line&) { return true; });
  const auto link = CoordinatorLink::Open({.address = desk.address()}, {});
  REQUIRE(link.ok());
  Turns turns(**link);
  REQUIRE(turns.Greeted());
  turns.Pass(100);
  CHECK((*link)->failures() == 0);
  (*link)->Send({});
  turns.Pass(60);
  CHECK((*link)->failures() == 0);
  turns.Pass(1);
  CHECK((*link)->failures() == 1);
  CHECK((*link)->state().message() ==
        "the coordinator at " + desk.address() + " has answered no report for a minute");
}

TEST_CASE("coordinator link: a report of an older line that is taken says nothing of a newer one") {
  std::atomic<uint64_t> older = 0;
  const Desk desk([&older](int session, uint64_t number, Desk::Line& line) {
    if (session == 0) {
      older = number;
      return false;
    }
    SayTaken(line, older.load());
    v1::ToAgent then;
    then.mutable_desired();
    line.Write(then);
    older = number;
    return true;
  });
  const auto link = CoordinatorLink::Open({.address = desk.address()}, {});
  REQUIRE(link.ok());
  Turns turns(**link);
  REQUIRE(turns.Greeted());
  (*link)->Send({});
  CHECK(turns.Await([&] { return turns.Poll() || (*link)->failures() == 1; }));
  turns.Pass(1);
  REQUIRE(turns.Greeted());
  (*link)->Send({});
  CHECK(turns.Await([&] { return (*link)->TakeDesired().has_value(); }));
  CHECK((*link)->TakenNs() == 0);
  (*link)->Send({});
  CHECK(turns.Await([&] { return (*link)->TakenNs() > 0; }));
}

TEST_CASE("coordinator link: what fails is told by the coordinator's address, and its code stays") {
  const tests::TemporaryFolder runtime;
  setenv("XDG_RUNTIME_DIR", runtime.path().c_str(), 1);
  fs::create_directory(runtime / "trireme");
  fs::permissions(runtime / "trireme", fs::perms::owner_all);
  auto link = CoordinatorLink::Open({}, {});
  REQUIRE(link.ok());
  CHECK(Await(**link, [&] { return (*link)->failures() == 1; }));
  unsetenv("XDG_RUNTIME_DIR");
  const std::string words((*link)->state().message());
  CHECK_THAT(words, Catch::StartsWith("no coordinator answers at unix:" +
                                      runtime / "trireme/triremed.sock (No such file") &&
                        !Catch::Contains("/proc/"));
  // Which the agent's log tells each time.
  for (const auto code : {grpc::StatusCode::ALREADY_EXISTS, grpc::StatusCode::ABORTED}) {
    const Desk desk(nullptr, grpc::Status(code, "as it says"));
    link = CoordinatorLink::Open({.address = desk.address()}, {});
    REQUIRE(link.ok());
    CHECK(Await(**link, [&] { return (*link)->failures() == 1; }));
    CHECK((*link)->state() == absl::Status(static_cast<absl::StatusCode>(code), "as it says"));
  }
}

}  // namespace
}  // namespace trireme::agent
