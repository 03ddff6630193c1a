// The unix socket: whom it lets in, and as whom.
#include <dlfcn.h>
#include <grp.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/generic_stub.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "runtime/base/status_macros.h"
#include "tests/coordinator/control_api/served_store.h"
#include "tests/skip.h"

namespace trireme::coordinator {
namespace {

constexpr char kNotRoot[] = "not here: root, who can call as somebody else";
constexpr uid_t kNobody = 65534;
constexpr uid_t kSlow = 65533;  // whose name nobody tells while names hang

std::atomic<bool> names_hang{false};

// A connection that a thread of that user has opened; -1, with errno in `error`. The system call
// changes the thread alone.
int ConnectAs(uid_t uid, const std::string& path, int& error) {
  int fd = -1;
  std::thread([&] {
    if (uid != geteuid() && syscall(SYS_setresuid, uid, uid, uid) != 0) {
      error = errno;
      return;
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      error = errno;
      close(fd);
      fd = -1;
    }
  }).join();
  return fd;
}

std::unique_ptr<v1::Control::Stub> StubOver(int fd) {
  return v1::Control::NewStub(grpc::CreateInsecureChannelFromFd("daemon", fd));
}

// The name that the daemon has for this caller, from what it says about a job of somebody else.
std::string AskForJob(v1::Control::Stub& stub, uint64_t id, grpc::StatusCode& code) {
  grpc::ClientContext context;
  ServedStore::Prepare(context, "");
  // What a caller says of himself without a token.
  for (const char* header : {"user", "uid", "trireme-user", "trireme-local-caller"}) {
    context.AddMetadata(header, "root");
  }
  v1::GetRequest request;
  request.set_job_id(id);
  v1::Job job;
  const grpc::Status status = stub.Get(&context, request, &job);
  code = status.error_code();
  return status.error_message();
}

// "list_services", to which each server with reflection has an answer.
grpc::StatusCode AskForServices(int fd) {
  grpc::GenericStub stub(grpc::CreateInsecureChannelFromFd("daemon", fd));
  grpc::ClientContext context;
  ServedStore::Prepare(context, "");
  const grpc::Slice words("\x3a\x00", 2);
  const grpc::ByteBuffer request(&words, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {},
                 &request, &response, [&](grpc::Status ended) {
                   status = std::move(ended);
                   done.Notify();
                 });
  done.WaitForNotification();
  return status.error_code();
}

// A stream of reflection with one question, open until End.
class OpenReflection : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit OpenReflection(grpc::GenericStub& stub) {
    ServedStore::Prepare(context_, "");
    const grpc::Slice words("\x3a\x00", 2);
    question_ = grpc::ByteBuffer(&words, 1);
    stub.PrepareBidiStreamingCall(
        &context_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {}, this);
    StartWrite(&question_);
    StartRead(&answer_);
    StartCall();
  }
  // Blocks until it is, or has ended without.
  bool IsAnswered() {
    read_.WaitForNotification();
    return answered_;
  }
  const grpc::Status& End() {
    if (answered_) context_.TryCancel();
    ended_.WaitForNotification();
    return status_;
  }

 private:
  void OnReadDone(bool ok) override {
    answered_ = ok;
    read_.Notify();
  }
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    ended_.Notify();
  }

  grpc::ClientContext context_;
  grpc::ByteBuffer question_, answer_;
  std::atomic<bool> answered_{false};
  grpc::Status status_;
  absl::Notification read_, ended_;
};

// A folder for a socket, which the first Open makes.
class FolderOfSocket {
 public:
  std::string path() const { return scratch_.path() + "/made"; }
  absl::Status Open() const {
    return SocketDoor::Open({path() + "/s.sock", ""}, [](int fd, uid_t) { close(fd); }).status();
  }
  void IsRefused(const std::string& why) const {
    const absl::Status opened = Open();
    INFO(opened.ToString());
    CHECK(absl::IsPermissionDenied(opened));
    CHECK_THAT(base::MessageOf(opened),
               Catch::Contains(path()) && Catch::Contains(why) && Catch::Contains("--socket"));
    CHECK_FALSE(std::filesystem::exists(path() + "/s.sock"));
  }

 private:
  Scratch scratch_;
};

}  // namespace
}  // namespace trireme::coordinator

// In the place of the C library's, which asks whatever the machine is set up to ask.
extern "C" int getpwuid_r(uid_t uid, passwd* entry, char* buffer, size_t size, passwd** found) {
  using Real = int (*)(uid_t, passwd*, char*, size_t, passwd**);
  static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "getpwuid_r"));
  while (uid == trireme::coordinator::kSlow && trireme::coordinator::names_hang) usleep(1000);
  return real(uid, entry, buffer, size, found);
}

namespace trireme::coordinator {

TEST_CASE("socket: without a group it is its owner's, who is an admin") {
  ServedStore served;
  served.AddJob(1, "ann");
  served.Serve();
  struct stat about {};
  REQUIRE(stat(served.socket().c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
  int error = 0;
  const int fd = ConnectAs(geteuid(), served.socket(), error);
  REQUIRE(fd >= 0);
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  AskForJob(*StubOver(fd), 1, code);
  CHECK(code == grpc::StatusCode::OK);
}

TEST_CASE("socket: without a group it lets nobody else in") {
  if (geteuid() != 0) TRIREME_SKIP(kNotRoot);
  ServedStore served;
  served.Serve();
  chmod(served.folder().c_str(), 0711);
  int error = 0;
  CHECK(ConnectAs(kNobody, served.socket(), error) == -1);
  CHECK(error == EACCES);
}

TEST_CASE("socket: each connection's calls are those of the user who has opened it") {
  if (geteuid() != 0) TRIREME_SKIP(kNotRoot);
  ServedStore served;
  served.AddJob(1, "ann");
  served.AddJob(2, "nobody");
  served.Serve();
  chmod(served.folder().c_str(), 0711);
  chmod(served.socket().c_str(), 0666);
  int error = 0;
  // In turns: a descriptor that one has closed is the next one's.
  for (int turn = 0; turn < 20; ++turn) {
    CAPTURE(turn);
    grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
    const auto of_nobody = StubOver(ConnectAs(kNobody, served.socket(), error));
    const auto of_root = StubOver(ConnectAs(0, served.socket(), error));
    const std::string told = AskForJob(*of_nobody, 1, code);
    CHECK(code == grpc::StatusCode::PERMISSION_DENIED);
    CHECK(told == "this job belongs to ann; you are nobody, and no admin");
    AskForJob(*of_root, 1, code);
    CHECK(code == grpc::StatusCode::OK);
    AskForJob(*of_nobody, 2, code);
    CHECK(code == grpc::StatusCode::OK);
    // Whom the machine does not know by a name gets no connection.
    AskForJob(*StubOver(ConnectAs(3999999999, served.socket(), error)), 2, code);
    CHECK(code == grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_CASE("socket: a group is let in by mode and folder, and refused where that cannot be") {
  const Scratch scratch;
  const auto ignore = [](int fd, uid_t) { close(fd); };
  const group* own = getgrgid(getegid());
  REQUIRE(own != nullptr);
  const std::string name = own->gr_name;
  const std::string made = scratch.path() + "/made/s.sock";
  chmod(scratch.path().c_str(), 0711);
  {
    const auto door = SocketDoor::Open({made, name}, ignore);
    INFO(door.status().ToString());
    REQUIRE(door.ok());
    struct stat about {};
    REQUIRE(stat(made.c_str(), &about) == 0);
    CHECK((about.st_mode & 0777) == 0660);
    CHECK(about.st_gid == getegid());
    REQUIRE(stat((scratch.path() + "/made").c_str(), &about) == 0);
    CHECK((about.st_mode & 0777) == 0710);
    CHECK(absl::IsAlreadyExists(SocketDoor::Open({made, name}, ignore).status()));
  }
  CHECK_FALSE(std::filesystem::exists(made));
  const auto unknown = SocketDoor::Open({made, "no-such-group"}, ignore);
  CHECK(base::MessageOf(unknown.status()).find("knows no such group") != std::string::npos);
  // Of a folder that was there the mode stays, and is not enough.
  chmod((scratch.path() + "/made").c_str(), 0700);
  const auto closed = SocketDoor::Open({made, name}, ignore);
  REQUIRE(absl::IsFailedPrecondition(closed.status()));
  CHECK(base::MessageOf(closed.status()).find("chmod g+x") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(made));
  std::ofstream(scratch.path() + "/file") << "kept";
  CHECK(absl::IsAlreadyExists(SocketDoor::Open({scratch.path() + "/file", ""}, ignore).status()));
  CHECK(std::filesystem::exists(scratch.path() + "/file"));
}

TEST_CASE("socket: a folder that others may write to is refused") {
  const FolderOfSocket folder;
  REQUIRE(folder.Open().ok());
  chmod(folder.path().c_str(), 0777);
  folder.IsRefused("may be written to by others");
  chmod(folder.path().c_str(), 01777);  // where others can take away nothing, as in /tmp
  CHECK(folder.Open().ok());
}

TEST_CASE("socket: a folder of somebody else, or behind a link of his, is refused") {
  if (geteuid() != 0) TRIREME_SKIP("not here: root, who can give files away");
  const FolderOfSocket folder;
  const std::string path = folder.path();
  REQUIRE(folder.Open().ok());
  REQUIRE(chown(path.c_str(), kNobody, kNobody) == 0);
  folder.IsRefused("belongs to user 65534");
  REQUIRE(chown(path.c_str(), 0, 0) == 0);
  std::filesystem::rename(path, path + "-good");
  std::filesystem::create_directory_symlink(path + "-good", path);
  CHECK(folder.Open().ok());
  REQUIRE(lchown(path.c_str(), kNobody, kNobody) == 0);
  folder.IsRefused("belongs to user 65534");
}

TEST_CASE("socket: who waits for a user database that hangs is let go, and holds up nobody else") {
  if (geteuid() != 0) TRIREME_SKIP(kNotRoot);
  ServedStore served;
  served.AddJob(1, "nobody");
  served.Serve();
  chmod(served.folder().c_str(), 0711);
  chmod(served.socket().c_str(), 0666);
  int error = 0;
  names_hang = true;
  const auto slow = StubOver(ConnectAs(kSlow, served.socket(), error));
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  for (const uid_t uid : {uid_t{0}, kNobody}) {
    AskForJob(*StubOver(ConnectAs(uid, served.socket(), error)), 1, code);
    CHECK(code == grpc::StatusCode::OK);
  }
  // By the daemon's limit: at its own the call would end with DEADLINE_EXCEEDED.
  AskForJob(*slow, 1, code);
  CHECK(code == grpc::StatusCode::UNAVAILABLE);
  CHECK(names_hang);
  names_hang = false;
}

TEST_CASE("socket: streams of reflection have so many threads in all, and hold up no other call") {
  ServedStore served;
  served.AddJob(1, "ann");
  served.Serve();
  int error = 0;
  grpc::GenericStub stub(
      grpc::CreateInsecureChannelFromFd("daemon", ConnectAs(geteuid(), served.socket(), error)));
  std::vector<std::unique_ptr<OpenReflection>> streams;
  constexpr size_t kAsked = 40;
  for (size_t i = 0; i < kAsked; ++i) streams.push_back(std::make_unique<OpenReflection>(stub));
  size_t answered = 0;
  for (const auto& stream : streams) {
    if (stream->IsAnswered()) {
      ++answered;
    } else {
      CHECK(stream->End().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    }
  }
  CHECK(answered >= 1);
  CHECK(answered <= 32);  // docs/operations/reference.md
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  AskForJob(*StubOver(ConnectAs(geteuid(), served.socket(), error)), 1, code);
  CHECK(code == grpc::StatusCode::OK);
  for (const auto& stream : streams) stream->End();
}

TEST_CASE("socket: reflection, which holds a thread for each stream, is for admins") {
  if (geteuid() != 0) TRIREME_SKIP(kNotRoot);
  ServedStore served;
  served.Serve();
  chmod(served.folder().c_str(), 0711);
  chmod(served.socket().c_str(), 0666);
  int error = 0;
  CHECK(AskForServices(ConnectAs(0, served.socket(), error)) == grpc::StatusCode::OK);
  CHECK(AskForServices(ConnectAs(kNobody, served.socket(), error)) ==
        grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("socket: a user's connections are bounded, and room is made by those that end") {
  if (geteuid() != 0) TRIREME_SKIP(kNotRoot);
  Limits limits;
  limits.connections.of_user = 3;
  ServedStore served(limits);
  served.AddJob(1, "nobody");
  served.Serve();
  chmod(served.folder().c_str(), 0711);
  chmod(served.socket().c_str(), 0666);
  int error = 0;
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  // Each turn closes its own: gRPC does so some time after its stub is gone.
  for (int turn = 0; turn < 20; ++turn) {
    CAPTURE(turn);
    for (int i = 0; i < 6000; ++i) {
      AskForJob(*StubOver(ConnectAs(kNobody, served.socket(), error)), 1, code);
      if (code == grpc::StatusCode::OK) break;
    }
    CHECK(code == grpc::StatusCode::OK);
  }
  std::vector<std::unique_ptr<v1::Control::Stub>> kept;
  int taken = 0;
  for (int i = 0; i < 5; ++i) {
    kept.push_back(StubOver(ConnectAs(kNobody, served.socket(), error)));
    AskForJob(*kept.back(), 1, code);
    if (code == grpc::StatusCode::OK) ++taken;
  }
  CHECK(taken <= 3);
  AskForJob(*StubOver(ConnectAs(0, served.socket(), error)), 1, code);
  CHECK(code == grpc::StatusCode::OK);
}

}  // namespace trireme::coordinator
