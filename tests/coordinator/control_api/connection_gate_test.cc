// The gate of the unix socket: how many connections a user has, and for how long one may be silent.
#include "coordinator/control_api/connection_gate.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace trireme::coordinator {
namespace {

constexpr uid_t kAnn = 3000, kBen = 3001;
const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string kSettings("\0\0\0\4\0\0\0\0\0", 9);

// Ours; the other one is the gate's.
class Client {
 public:
  Client(ConnectionGate& gate, uid_t uid) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    fd_ = ends[0];
    gate.Take(ends[1], uid);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  // Whoever was refused is not heard.
  void Say(const std::string& words) { (void)!send(fd_, words.data(), words.size(), MSG_NOSIGNAL); }
  // All that it is told until it is closed at the other end, within a minute.
  std::string ToldUntilEnd() {
    std::string told;
    while (true) {
      pollfd entry{fd_, POLLIN, 0};
      REQUIRE(poll(&entry, 1, 60000) == 1);
      char piece[512];
      const ssize_t got = recv(fd_, piece, sizeof piece, 0);
      if (got <= 0) return told;
      told.append(piece, static_cast<size_t>(got));
    }
  }

 private:
  int fd_ = -1;
};

// What the gate has passed, one after another.
class Passed {
 public:
  Passed() { REQUIRE(pipe2(ends_, O_CLOEXEC) == 0); }
  ~Passed() {
    for (const int end : ends_) close(end);
  }
  ConnectionGate::Pass Taker() {
    return [this](int fd, uid_t) { (void)!write(ends_[1], &fd, sizeof fd); };
  }
  // Within a minute; -1: nothing.
  int Next(int within_ms = 60000) {
    pollfd entry{ends_[0], POLLIN, 0};
    int fd = -1;
    if (poll(&entry, 1, within_ms) == 1) (void)!read(ends_[0], &fd, sizeof fd);
    return fd;
  }

 private:
  int ends_[2];
};

}  // namespace

TEST_CASE("gate: who begins to speak HTTP/2 is passed with all that he has said") {
  Passed passed;
  ConnectionGate gate({}, passed.Taker());
  Client client(gate, kAnn);
  // In pieces.
  client.Say(kPreface.substr(0, 10));
  client.Say(kPreface.substr(10));
  CHECK(passed.Next(100) == -1);
  client.Say(kSettings);
  const int fd = passed.Next();
  REQUIRE(fd >= 0);
  char words[64];
  CHECK(recv(fd, words, sizeof words, 0) ==
        static_cast<ssize_t>(kPreface.size() + kSettings.size()));
  EndConnection(fd);
  CHECK(client.ToldUntilEnd().empty());
  Client other(gate, kAnn);
  other.Say("GET / HTTP/1.1\r\n");
  other.ToldUntilEnd();
}

TEST_CASE("gate: who says nothing is not kept") {
  Passed passed;
  GateBounds bounds;
  bounds.speaks_within = std::chrono::milliseconds(20);
  ConnectionGate gate(bounds, passed.Taker());
  Client silent(gate, kAnn), begins(gate, 0);
  begins.Say(kPreface);
  CHECK(silent.ToldUntilEnd().empty());
  CHECK(begins.ToldUntilEnd().empty());
  CHECK(passed.Next(0) == -1);
}

TEST_CASE("gate: a user has so many connections, whether they speak or not, and takes no other's") {
  Passed passed;
  GateBounds bounds;
  bounds.of_user = 2;
  bounds.speaks_within = std::chrono::hours(1);
  ConnectionGate gate(bounds, passed.Taker());
  Client speaks(gate, kAnn);
  speaks.Say(kPreface + kSettings);
  const int first = passed.Next();
  REQUIRE(first >= 0);
  auto silent = std::make_unique<Client>(gate, kAnn);
  {
    Client third(gate, kAnn);
    const std::string told = third.ToldUntilEnd();
    CHECK(told.find("2 connections of yours are open") != std::string::npos);
    CHECK(told.substr(0, 9) == kSettings);
    CHECK(told[9 + 3] == 7);
  }
  std::vector<std::unique_ptr<Client>> others;
  for (const uid_t uid : {kBen, uid_t{0}, uid_t{0}, uid_t{0}}) {
    CAPTURE(uid);
    others.push_back(std::make_unique<Client>(gate, uid));
    others.back()->Say(kPreface + kSettings);
    CHECK(passed.Next() >= 0);
  }
  // Each end makes room: of one that was passed, by whoever of the two; of one that was silent.
  const auto comes_in = [&] {
    for (int i = 0; i < 6000; ++i) {
      auto client = std::make_unique<Client>(gate, kAnn);
      client->Say(kPreface + kSettings);
      const int fd = passed.Next(10);
      if (fd < 0) continue;
      others.push_back(std::move(client));
      return fd;
    }
    return -1;
  };
  EndConnection(first);
  const int second = comes_in();
  REQUIRE(second >= 0);
  silent.reset();
  REQUIRE(comes_in() >= 0);
  others.pop_back();
  CHECK(comes_in() >= 0);
}

TEST_CASE("gate: what is left of the daemon's descriptors is for root") {
  Passed passed;
  GateBounds bounds;
  bounds.first_kept_back = 1;
  ConnectionGate gate(bounds, passed.Taker());
  Client refused(gate, kAnn);
  CHECK(refused.ToldUntilEnd().find("too many connections") != std::string::npos);
  Client taken(gate, 0);
  taken.Say(kPreface + kSettings);
  CHECK(passed.Next() >= 0);
}

}  // namespace trireme::coordinator
