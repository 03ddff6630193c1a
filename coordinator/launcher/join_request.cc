// The request is text: numbers, and strings as the kernel has them, each ended by a zero.
#include "coordinator/launcher/join_request.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/base/status_macros.h"

namespace trireme::launcher {
namespace {

constexpr char kMagic[8] = {'T', 'R', 'J', 'O', 'I', 'N', '1', '\n'};
// Beyond what execve takes by default; an environment is some KiB.
constexpr uint32_t kMostRequestBytes = 4 << 20;
constexpr uint64_t kMostStrings = 1 << 16;

struct Header {
  char magic[sizeof kMagic];
  uint32_t request_bytes;
};

// A header with room for the descriptors that go with it; where it is, a message points at it.
struct HeaderMessage {
  explicit HeaderMessage(Header& header) : bytes{&header, sizeof header} {
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  HeaderMessage(const HeaderMessage&) = delete;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof JoinRequest::standard_fds)] = {};
  iovec bytes;
  msghdr message{};
};

absl::Status HungUp() { return absl::UnavailableError("the other side has hung up"); }

absl::Status AwaitSocket(int socket, short events, int64_t until_ms) {
  while (true) {
    const int64_t left = until_ms - JoinClockMs();
    if (left <= 0) return absl::DeadlineExceededError("no answer in time");
    pollfd entry{socket, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
  }
}

absl::Status SendBytes(int socket, std::string_view bytes, int64_t until_ms) {
  while (!bytes.empty()) {
    RETURN_IF_ERROR(AwaitSocket(socket, POLLOUT, until_ms));
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return HungUp();
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return absl::ErrnoToStatus(errno, "send");
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status ReceiveBytes(int socket, char* to, size_t count, int64_t until_ms) {
  while (count > 0) {
    RETURN_IF_ERROR(AwaitSocket(socket, POLLIN, until_ms));
    const ssize_t got = recv(socket, to, count, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return HungUp();
    if (got < 0 && errno != EINTR && errno != EAGAIN) return absl::ErrnoToStatus(errno, "recv");
    if (got < 0) continue;
    to += got;
    count -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

// The first bytes, with what descriptors came with them.
absl::Status ReceiveHeader(int socket, Header& header, std::vector<int>& fds, int64_t until_ms) {
  RETURN_IF_ERROR(AwaitSocket(socket, POLLIN, until_ms));
  HeaderMessage with_fds(header);
  msghdr& message = with_fds.message;
  const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return absl::ErrnoToStatus(errno, "recvmsg");
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> more((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(more.data(), CMSG_DATA(part), more.size() * sizeof(int));
    fds.insert(fds.end(), more.begin(), more.end());
  }
  // A unix socket does not part so few bytes.
  const bool ours = got == sizeof header && (message.msg_flags & MSG_CTRUNC) == 0 &&
                    fds.size() == 3 && std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 &&
                    header.request_bytes <= kMostRequestBytes;
  return ours ? absl::OkStatus() : absl::InvalidArgumentError("no request to join");
}

// What is left of a request.
class Fields {
 public:
  explicit Fields(std::string_view text) : text_(text) {}
  absl::StatusOr<std::string> String() {
    const size_t end = text_.find('\0');
    if (end == text_.npos) return absl::InvalidArgumentError("a request to join that is cut off");
    std::string field(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return field;
  }
  absl::StatusOr<uint64_t> Number() {
    ASSIGN_OR_RETURN(const std::string field, String());
    uint64_t number = 0;
    const char* const end = field.data() + field.size();
    const auto read = std::from_chars(field.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end) {
      return absl::InvalidArgumentError("a request to join without a number");
    }
    return number;
  }
  absl::StatusOr<std::vector<std::string>> Strings() {
    ASSIGN_OR_RETURN(const uint64_t count, Number());
    if (count > kMostStrings) return absl::InvalidArgumentError("a request to join of many words");
    std::vector<std::string> strings;
    for (uint64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(strings.emplace_back(), String());
    }
    return strings;
  }

 private:
  std::string_view text_;
};

void AddField(std::string& text, std::string_view field) {
  text.append(field);
  text.push_back('\0');
}

void AddStrings(std::string& text, const std::vector<std::string>& strings) {
  AddField(text, std::to_string(strings.size()));
  for (const std::string& field : strings) AddField(text, field);
}

std::string TextOf(const JoinRequest& request) {
  std::string text;
  AddStrings(text, request.argv);
  AddStrings(text, request.environment);
  AddField(text, request.working_folder);
  AddField(text, std::to_string(request.umask));
  AddField(text, std::to_string(request.limits.size()));
  for (const JoinRequest::Limit& limit : request.limits) {
    AddField(text, std::to_string(limit.resource));
    AddField(text, std::to_string(limit.value.rlim_cur));
    AddField(text, std::to_string(limit.value.rlim_max));
  }
  return text;
}

absl::StatusOr<JoinRequest> RequestIn(std::string_view text) {
  Fields fields(text);
  JoinRequest request;
  ASSIGN_OR_RETURN(request.argv, fields.Strings());
  ASSIGN_OR_RETURN(request.environment, fields.Strings());
  ASSIGN_OR_RETURN(request.working_folder, fields.String());
  ASSIGN_OR_RETURN(const uint64_t mask, fields.Number());
  request.umask = static_cast<mode_t>(mask & 0777);
  ASSIGN_OR_RETURN(const uint64_t count, fields.Number());
  for (uint64_t i = 0; i < std::min<uint64_t>(count, RLIM_NLIMITS); ++i) {
    JoinRequest::Limit limit;
    ASSIGN_OR_RETURN(const uint64_t resource, fields.Number());
    limit.resource = static_cast<int>(std::min<uint64_t>(resource, INT_MAX));
    ASSIGN_OR_RETURN(limit.value.rlim_cur, fields.Number());
    ASSIGN_OR_RETURN(limit.value.rlim_max, fields.Number());
    request.limits.push_back(limit);
  }
  if (request.argv.empty() || request.argv[0].find('/') == std::string::npos) {
    return absl::InvalidArgumentError("a request to join without the path of a program");
  }
  return request;
}

absl::StatusOr<JoinRequest> ReceiveRest(int socket, const Header& header, int64_t until_ms) {
  std::string text(header.request_bytes, '\0');
  RETURN_IF_ERROR(ReceiveBytes(socket, text.data(), text.size(), until_ms));
  return RequestIn(text);
}

}  // namespace

int64_t JoinClockMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000} + now.tv_nsec / 1000000;
}

JoinRequest RequestOfThisProcess(std::vector<std::string> argv) {
  JoinRequest request;
  request.argv = std::move(argv);
  for (char** entry = environ; *entry != nullptr; ++entry) request.environment.emplace_back(*entry);
  char folder[PATH_MAX];
  request.working_folder = getcwd(folder, sizeof folder) == nullptr ? "/" : folder;
  request.umask = ::umask(0);
  ::umask(request.umask);
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    JoinRequest::Limit limit{resource, {}};
    const auto which = static_cast<__rlimit_resource>(resource);
    if (getrlimit(which, &limit.value) == 0) request.limits.push_back(limit);
  }
  return request;
}

absl::Status SendRequest(int socket, const JoinRequest& request, int64_t until_ms) {
  const std::string text = TextOf(request);
  if (text.size() > kMostRequestBytes) {
    return absl::ResourceExhaustedError(fmt::format("its words have {} bytes", text.size()));
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.request_bytes = static_cast<uint32_t>(text.size());
  HeaderMessage with_fds(header);
  cmsghdr* const part = CMSG_FIRSTHDR(&with_fds.message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof request.standard_fds);
  std::memcpy(CMSG_DATA(part), request.standard_fds.data(), sizeof request.standard_fds);
  RETURN_IF_ERROR(AwaitSocket(socket, POLLOUT, until_ms));
  const ssize_t sent = sendmsg(socket, &with_fds.message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return HungUp();
  if (sent < 0) return absl::ErrnoToStatus(errno, "sendmsg");
  if (sent != sizeof header) return HungUp();
  return SendBytes(socket, text, until_ms);
}

absl::StatusOr<JoinRequest> ReceiveRequest(int socket, int64_t until_ms) {
  Header header{};
  std::vector<int> fds;
  const absl::Status begun = ReceiveHeader(socket, header, fds, until_ms);
  absl::StatusOr<JoinRequest> request =
      begun.ok() ? ReceiveRest(socket, header, until_ms) : absl::StatusOr<JoinRequest>(begun);
  if (!request.ok()) {
    for (const int fd : fds) close(fd);
    return request;
  }
  std::copy_n(fds.begin(), request->standard_fds.size(), request->standard_fds.begin());
  return request;
}

absl::Status SendByte(int socket, char byte, int64_t until_ms) {
  return SendBytes(socket, std::string_view(&byte, 1), until_ms);
}

absl::StatusOr<char> ReceiveByte(int socket, int64_t until_ms) {
  char byte = 0;
  RETURN_IF_ERROR(ReceiveBytes(socket, &byte, 1, until_ms));
  return byte;
}

}  // namespace trireme::launcher
