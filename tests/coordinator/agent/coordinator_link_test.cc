// An agent dials for ever, and each time looks anew at whose the default socket is.
#include "coordinator/agent/coordinator_link.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "tests/skip.h"
#include "tests/temporary_folder.h"

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
  ~Ear() { close(fd_); }
  Ear(const Ear&) = delete;
  Ear& operator=(const Ear&) = delete;
  // Somebody has dialled since the last call; hangs up.
  bool Heard() const {
    const int caller = accept(fd_, nullptr, nullptr);
    if (caller >= 0) close(caller);
    return caller >= 0;
  }

 private:
  const int fd_;
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

TEST_CASE("coordinator link: one that says nothing is left, and dialled again") {
  const tests::TemporaryFolder folder;
  const Ear mute(folder / "mute.sock");
  const auto link = CoordinatorLink::Open({.address = "unix:" + folder / "mute.sock"}, {});
  REQUIRE(link.ok());
  const auto now = Clock::now();
  (*link)->Poll(now);
  (*link)->Poll(now + std::chrono::seconds(50));
  CHECK((*link)->failures() == 0);
  // No timer of gRPC's needs to come for it.
  (*link)->Poll(Clock::now() + std::chrono::seconds(61));
  CHECK((*link)->failures() == 1);
  CHECK_THAT(std::string((*link)->state().message()), Catch::Contains("said nothing"));
}

}  // namespace
}  // namespace trireme::agent
