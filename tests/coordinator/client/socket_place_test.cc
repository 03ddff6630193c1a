// Where nobody says where the coordinator is: what listens at the default socket counts only where
// nobody else can have put it there.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "coordinator/client/client.h"
#include "runtime/base/status_macros.h"
#include "tests/coordinator/client/fake_control.h"
#include "tests/skip.h"
#include "tests/temporary_folder.h"

namespace trireme::client {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

// A daemon at the default socket, in a folder that can be given away.
class DefaultPlace {
 public:
  DefaultPlace() {
    setenv("XDG_RUNTIME_DIR", runtime_.path().c_str(), 1);
    chmod(runtime_.path().c_str(), 01777);  // as /tmp
    fs::create_directory(folder());
    chmod(folder().c_str(), 0700);
    fs::create_hard_link(daemon_.folder() + "/triremed.sock", socket());
  }
  ~DefaultPlace() { unsetenv("XDG_RUNTIME_DIR"); }
  DefaultPlace(const DefaultPlace&) = delete;
  DefaultPlace& operator=(const DefaultPlace&) = delete;

  // As /run, where only root puts folders.
  void CloseAbove() { chmod(runtime_.path().c_str(), 0755); }
  std::string folder() const { return runtime_ / "trireme"; }
  std::string socket() const { return folder() + "/triremed.sock"; }
  // The daemon ends, and another user puts a folder of his there, in which it listens again: as if
  // it were his.
  void ReplaceByAnothers() {
    daemon_.Stop();
    fs::rename(folder(), folder() + "-before");
    daemon_.Start();
    fs::create_directory(folder());
    fs::create_hard_link(daemon_.folder() + "/triremed.sock", socket());
    REQUIRE(chown(folder().c_str(), kNobody, kNobody) == 0);
  }
  FakeControl& daemon() { return daemon_; }
  // Of a call by the default address.
  absl::Status Ask() const {
    ASSIGN_OR_RETURN(const auto client, Client::Open({}));
    return client->Call(v1::GetClusterRequest()).status();
  }
  // It was refused for that, in words that name the path, and before anything was sent.
  void CheckRefused(const std::string& path, const std::string& why) {
    int calls = 0;
    FakeFaults faults;
    faults.before = [&](const std::string&) {
      ++calls;
      return absl::OkStatus();
    };
    daemon_.set_faults(faults);
    const absl::Status asked = Ask();
    daemon_.set_faults({});
    INFO(asked.ToString());
    CHECK(absl::IsPermissionDenied(asked));
    CHECK_THAT(base::MessageOf(asked), Catch::Contains(path) && Catch::Contains(why) &&
                                           Catch::Contains("--coordinator ADDRESS"));
    CHECK(calls == 0);
  }

 private:
  FakeControl daemon_;
  const tests::TemporaryFolder runtime_;
};

TEST_CASE("default socket: one's own is called, and where there is none nobody answers") {
  DefaultPlace place;
  CHECK(place.Ask().ok());
  fs::remove(place.socket());
  CHECK(absl::IsUnavailable(place.Ask()));
  fs::remove(place.folder());
  CHECK(absl::IsUnavailable(place.Ask()));
  // Before others can.
  struct stat about {};
  REQUIRE(lstat(place.folder().c_str(), &about) == 0);
  CHECK((about.st_mode & 07777) == 0700);
  fs::remove(place.folder());
  place.CloseAbove();
  CHECK(absl::IsUnavailable(place.Ask()));
  CHECK_FALSE(fs::exists(place.folder()));
}

TEST_CASE("default socket: a folder that others may write to is refused, unless it is named") {
  DefaultPlace place;
  chmod(place.folder().c_str(), GENERATE(0770, 0707, 01777));
  place.CheckRefused(place.folder(), "chmod go-w");
  ClientOptions named;
  named.address = "unix:" + place.socket();
  const auto client = Client::Open(named);
  REQUIRE(client.ok());
  CHECK((*client)->Call(v1::GetClusterRequest()).ok());
}

TEST_CASE("default socket: a file in the place of its folder is refused") {
  DefaultPlace place;
  fs::remove_all(place.folder());
  std::ofstream(place.folder()) << "x";
  place.CheckRefused(place.folder(), "is no folder");
}

// No file can be opened while this lives.
class NoFiles {
 public:
  NoFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;

 private:
  rlimit before_{};
};

TEST_CASE("default socket: where it cannot be looked at, that is said, and a stream tries again") {
  DefaultPlace place;
  const auto client = Client::Open({});
  REQUIRE(client.ok());
  place.daemon().Tell(v1::Event());
  const auto events = (*client)->Watch(v1::WatchRequest());
  v1::WatchResponse response;
  {
    const NoFiles none;
    const absl::Status asked = place.Ask();
    INFO(asked.ToString());
    CHECK(absl::IsResourceExhausted(asked));
    CHECK_THAT(base::MessageOf(asked),
               Catch::Contains(place.folder()) && Catch::Contains("Too many open files"));
    const auto pulled = events->Next(response, std::chrono::milliseconds(300));
    INFO(pulled.status().ToString());
    REQUIRE(pulled.ok());
    CHECK(*pulled == Pull::kNothing);
  }
  const auto pulled = events->Next(response, std::chrono::seconds(60));
  INFO(pulled.status().ToString());
  REQUIRE(pulled.ok());
  CHECK(*pulled == Pull::kMessage);
}

TEST_CASE("default socket: what another user has put there is refused") {
  if (geteuid() != 0) TRIREME_SKIP("not here: root, who can give files away");
  DefaultPlace place;
  SECTION("the folder") {
    REQUIRE(chown(place.folder().c_str(), kNobody, kNobody) == 0);
    place.CheckRefused(place.folder(), "belongs to user 65534");
  }
  SECTION("the socket") {
    REQUIRE(chown(place.socket().c_str(), kNobody, kNobody) == 0);
    place.CheckRefused(place.socket(), "belongs to user 65534");
  }
  SECTION("the folder, and the socket in the name of a third") {
    REQUIRE(chown(place.folder().c_str(), kNobody, kNobody) == 0);
    place.CloseAbove();
    CHECK(place.Ask().ok());  // the folder is given to him, as to the user of the packaged daemon
    REQUIRE(chown(place.socket().c_str(), kNobody, kNobody) == 0);
    CHECK(place.Ask().ok());
    REQUIRE(chown(place.socket().c_str(), kNobody - 1, kNobody) == 0);
    place.CheckRefused(place.socket(), "belongs to user 65533");
    chmod(place.folder().c_str(), 0777);
    place.CheckRefused(place.folder(), "chmod go-w");
  }
  SECTION("a link of root's to his folder, which he may have made a link anew since") {
    place.CloseAbove();
    fs::rename(place.folder(), place.folder() + "-his");
    REQUIRE(chown((place.folder() + "-his").c_str(), kNobody, kNobody) == 0);
    fs::create_directory_symlink(place.folder() + "-his", place.folder());
    place.CheckRefused(place.folder(), "a link of root's to one of user 65534, as systemd makes");
  }
  SECTION("a link, which leads to a good folder at present") {
    fs::rename(place.folder(), place.folder() + "-good");
    fs::create_directory_symlink(place.folder() + "-good", place.folder());
    CHECK(place.Ask().ok());  // one's own
    REQUIRE(lchown(place.folder().c_str(), kNobody, kNobody) == 0);
    place.CheckRefused(place.folder(), "belongs to user 65534");
  }
}

TEST_CASE("default socket: whose it is counts anew for each call and each try of a stream") {
  if (geteuid() != 0) TRIREME_SKIP("not here: root, who can give files away");
  DefaultPlace place;
  const auto client = Client::Open({});
  REQUIRE(client.ok());
  v1::Event event;
  event.set_job_id(1);
  place.daemon().Tell(event);
  const auto events = (*client)->Watch(v1::WatchRequest());
  v1::WatchResponse response;
  const auto next = [&] { return events->Next(response, std::chrono::seconds(60)); };
  REQUIRE(next().ok());
  REQUIRE((*client)->Call(v1::GetClusterRequest()).ok());
  const size_t calls = place.daemon().calls().size();
  SECTION("it stays the same over a restart") {
    place.daemon().Stop();
    fs::remove(place.socket());
    place.daemon().Start();
    fs::create_hard_link(place.daemon().folder() + "/triremed.sock", place.socket());
    place.daemon().Tell(event);
    CHECK(next().ok());
    CHECK((*client)->Call(v1::GetClusterRequest()).ok());
  }
  SECTION("another user has put a folder of his there meanwhile") {
    place.ReplaceByAnothers();
    place.daemon().Tell(event);
    for (const absl::Status& asked :
         {next().status(), (*client)->Call(v1::GetClusterRequest()).status()}) {
      INFO(asked.ToString());
      CHECK(absl::IsPermissionDenied(asked));
      CHECK_THAT(base::MessageOf(asked), Catch::Contains("belongs to user 65534"));
    }
    CHECK(place.daemon().calls().size() == calls);
  }
}

}  // namespace
}  // namespace trireme::client
