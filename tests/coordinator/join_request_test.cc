// What a helper and its agent say to each other comes through as it was said, or is refused.
#include "coordinator/launcher/join_request.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;

int64_t Soon() { return JoinClockMs() + 10000; }

class Line {
 public:
  Line() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_) == 0); }
  Line(const Line&) = delete;
  ~Line() {
    HangUp();
    close(ends_[1]);
  }
  int helper() const { return ends_[0]; }
  int agent() const { return ends_[1]; }
  void HangUp() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  // Bytes with the descriptors 0 to 2, `fds` of them.
  void Say(const std::string& bytes, size_t fds = 3) const {
    const int standard[3] = {0, 1, 2};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof standard)] = {};
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fds > 0) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds * sizeof(int));
      std::memcpy(CMSG_DATA(rights), standard, fds * sizeof(int));
    }
    REQUIRE(sendmsg(helper(), &message, 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  int ends_[2] = {-1, -1};
};

int OpenFds() {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) count += !entry.path().empty();
  return count;
}

JoinRequest Some() {
  JoinRequest request = RequestOfThisProcess({"/bin/sh", "-c", "", "a\nb \xff"});
  request.environment = {"A=1", "B=", "C=x y\tz"};
  return request;
}

// As it goes over the line.
std::string BytesOf(const JoinRequest& request) {
  const Line line;
  REQUIRE(SendRequest(line.helper(), request, Soon()).ok());
  std::string bytes(1 << 16, '\0');
  bytes.resize(static_cast<size_t>(recv(line.agent(), bytes.data(), 12, 0)));
  REQUIRE(bytes.size() == 12);
  char rest[1 << 16];
  const ssize_t got = recv(line.agent(), rest, sizeof rest, 0);
  return bytes + std::string(rest, static_cast<size_t>(got));
}

std::string WithLength(std::string bytes, uint32_t length) {
  std::memcpy(bytes.data() + 8, &length, sizeof length);
  return bytes;
}

TEST_CASE("a request to join comes through as it was made, with its descriptors") {
  const Line line;
  JoinRequest sent = Some();
  int pipe_fds[2];
  REQUIRE(pipe2(pipe_fds, O_CLOEXEC) == 0);
  sent.standard_fds = {0, pipe_fds[1], 2};
  sent.umask = 027;
  REQUIRE(SendRequest(line.helper(), sent, Soon()).ok());
  const auto got = ReceiveRequest(line.agent(), Soon());
  REQUIRE(got.ok());
  CHECK((got->argv == sent.argv && got->environment == sent.environment));
  CHECK((got->working_folder == fs::current_path() && got->umask == 027));
  REQUIRE(got->limits.size() == sent.limits.size());
  for (size_t i = 0; i < sent.limits.size(); ++i) {
    CHECK(got->limits[i].resource == sent.limits[i].resource);
    CHECK(got->limits[i].value.rlim_cur == sent.limits[i].value.rlim_cur);
    CHECK(got->limits[i].value.rlim_max == sent.limits[i].value.rlim_max);
  }
  CHECK(write(got->standard_fds[1], "x", 1) == 1);
  char byte = 0;
  CHECK((read(pipe_fds[0], &byte, 1) == 1 && byte == 'x'));
  for (const int fd : got->standard_fds) close(fd);
  for (const int fd : pipe_fds) close(fd);
}

TEST_CASE("what is no request to join is refused, and leaves no descriptor open") {
  const std::string whole = BytesOf(Some());
  const int before = OpenFds();
  const auto refused = [](const std::string& bytes, size_t fds = 3) {
    Line line;
    line.Say(bytes, fds);
    line.HangUp();
    return !ReceiveRequest(line.agent(), Soon()).ok();
  };
  // Cut off anywhere: by its length, and by an end before it.
  for (size_t cut = 0; cut + 12 < whole.size(); ++cut) {
    CAPTURE(cut);
    const std::string part = whole.substr(0, 12 + cut);
    CHECK(refused(WithLength(part, static_cast<uint32_t>(cut))));
    if (cut % 16 == 0) CHECK(refused(part));
  }
  CHECK(refused(whole, 0));
  CHECK(refused(whole, 2));
  CHECK(refused(WithLength(whole, UINT32_MAX)));
  CHECK(refused("TRJOIN2" + whole.substr(7)));
  JoinRequest without = Some();
  without.argv[0] = "orted";  // nobody here looks it up
  CHECK(refused(BytesOf(without)));
  without.argv.clear();
  CHECK(refused(BytesOf(without)));
  CHECK(OpenFds() == before);
}

TEST_CASE("a word that does not come is waited for so long") {
  const Line line;
  CHECK(absl::IsDeadlineExceeded(ReceiveByte(line.agent(), JoinClockMs() + 50).status()));
  CHECK(absl::IsDeadlineExceeded(ReceiveRequest(line.agent(), JoinClockMs() + 50).status()));
}

}  // namespace
}  // namespace trireme::launcher
