#include "coordinator/launcher/join_attempt.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "coordinator/launcher/join_request.h"
#include "coordinator/process/command.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/pinned_folder.h"
#include "runtime/base/status_macros.h"

namespace trireme::launcher {
namespace {

constexpr timespec kConnectAgain{0, 50000000};

bool IsPlain(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-";
  return !text.empty() && text.find_first_not_of(kPlain) == text.npos;
}

class Connection {
 public:
  Connection() = default;
  explicit Connection(int fd) : fd_(fd) {}
  Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Connection& operator=(Connection&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Connection() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// To a process of our own user, by a folder that is his alone.
absl::StatusOr<Connection> Connect(const std::string& session_folder) {
  RETURN_IF_ERROR(base::OpenOwnFolder(session_folder).status());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = JoinSocket(session_folder);
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(fmt::format("the socket path {} is too long", path));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  Connection connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.fd() < 0) return absl::ErrnoToStatus(errno, "socket");
  if (connect(connection.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return absl::ErrnoToStatus(errno, "cannot connect to " + path);
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(connection.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != geteuid()) {
    return absl::PermissionDeniedError("another user listens at " + path);
  }
  return connection;
}

// The agent may have heard of the attempt a moment later than mpirun's remote shell was here.
absl::StatusOr<Connection> ConnectUntil(const std::string& session_folder, int64_t until_ms) {
  while (true) {
    absl::StatusOr<Connection> connection = Connect(session_folder);
    if (connection.ok() || absl::IsPermissionDenied(connection.status()) ||
        absl::IsInvalidArgument(connection.status()) || JoinClockMs() >= until_ms) {
      return connection;
    }
    nanosleep(&kConnectAgain, nullptr);
  }
}

// The agent's first word. It may hang up while it is being started anew.
absl::StatusOr<char> AskToJoin(const Connection& connection, const JoinRequest& request,
                               int64_t until_ms) {
  RETURN_IF_ERROR(SendRequest(connection.fd(), request, until_ms));
  return ReceiveByte(connection.fd(), until_ms);
}

int ExecuteHere(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const std::string& word : argv) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  std::fprintf(stderr, "cannot start %s: %s\n", pointers[0], std::strerror(errno));
  return 127;
}

}  // namespace

std::string JoinSocket(const std::string& session_folder) { return session_folder + "/join"; }

std::string JoiningLaunchAgent(const std::string& program, const std::string& session_folder) {
  if (!IsPlain(program) || !IsPlain(session_folder)) return "";
  return fmt::format("`{} {} {} {} 2>/dev/null` orted", program, kJoinAttempt, kJoinOffer,
                     session_folder);
}

JoinAnswer RunJoined(const std::string& session_folder, const std::vector<std::string>& argv,
                     std::chrono::milliseconds limit) {
  const int64_t until_ms = JoinClockMs() + limit.count();
  const JoinRequest request = RequestOfThisProcess(argv);
  while (true) {
    const absl::StatusOr<Connection> connection = ConnectUntil(session_folder, until_ms);
    if (!connection.ok()) return {std::nullopt, base::MessageOf(connection.status())};
    const absl::StatusOr<char> word = AskToJoin(*connection, request, until_ms);
    if (absl::IsUnavailable(word.status()) && JoinClockMs() < until_ms) {
      nanosleep(&kConnectAgain, nullptr);
      continue;
    }
    if (!word.ok()) return {std::nullopt, base::MessageOf(word.status())};
    if (*word == kJoinNone) return {std::nullopt, ""};
    if (*word == kJoinRefused) {
      std::fprintf(stderr, "the agent of this node is to end the attempt: nothing is started\n");
      return {base::kKilledCode, ""};
    }
    if (*word != kJoinReady || !SendByte(connection->fd(), kJoinGo, until_ms).ok()) {
      return {std::nullopt, "its answer is not understood"};
    }
    // It runs now, or has run, as long as that may be.
    const absl::StatusOr<char> code = ReceiveByte(connection->fd(), INT64_MAX);
    return {code.ok() ? static_cast<unsigned char>(*code) : 1, ""};
  }
}

int JoinAttempt(const std::string& program, std::vector<std::string> words) {
  if (words.size() == 2 && words[0] == kJoinOffer) {
    std::printf("%s %s %s\n", program.c_str(), kJoinAttempt, words[1].c_str());
    return base::kOk;
  }
  if (words.size() < 2 || words[0].starts_with("-")) {
    std::fprintf(stderr, "trireme-agent %s: expected SESSION_FOLDER COMMAND ARGUMENT...\n",
                 kJoinAttempt);
    return base::kBadInput;
  }
  const std::string folder = words[0];
  words.erase(words.begin());
  std::vector<std::string> joined = words;
  if (words[0].find('/') == std::string::npos) joined[0] = process::FindProgram(words[0]);
  if (joined[0].empty()) return ExecuteHere(words);
  const JoinAnswer answer = RunJoined(folder, joined);
  if (answer.exit_code) return *answer.exit_code;
  if (!answer.why_not.empty()) {
    std::fprintf(stderr, "%s runs outside of its attempt's control group: %s\n", words[0].c_str(),
                 answer.why_not.c_str());
  }
  return ExecuteHere(words);
}

}  // namespace trireme::launcher
