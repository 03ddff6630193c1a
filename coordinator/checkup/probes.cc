#include "coordinator/checkup/probes.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <vector>

#include "coordinator/control_group/cpus_here.h"
#include "coordinator/control_group/delegation.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkup {
namespace {

uint64_t LimitOf(rlim_t limit) { return limit == RLIM_INFINITY ? kUnlimited : limit; }

// Closes when it goes.
class Socket {
 public:
  explicit Socket(int family) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// A connection to a socket that listens stands before anybody accepts it.
absl::Status TryLoopback() {
  const Socket server(AF_INET), client(AF_INET);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (bind(server.get(), name, size) != 0 || listen(server.get(), 1) != 0 ||
      getsockname(server.get(), name, &size) != 0) {
    return absl::ErrnoToStatus(errno, "cannot listen");
  }
  // A firewall that drops instead of refusing must not hold this up.
  const timeval deadline{5, 0};
  setsockopt(client.get(), SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
  if (connect(client.get(), name, size) != 0) return absl::ErrnoToStatus(errno, "cannot connect");
  return absl::OkStatus();
}

// `process`: its folder in /proc.
bool IsAgent(const std::string& process) {
  std::ifstream in(process + "/comm");
  std::string name;
  return std::getline(in, name) && name == "trireme-agent";
}

// "--name value", "--name=value", the last of them; empty: it is not given.
std::string OptionIn(const std::vector<std::string>& arguments, const std::string& name) {
  std::string value;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == name && i + 1 < arguments.size()) value = arguments[i + 1];
    if (arguments[i].starts_with(name + "=")) value = arguments[i].substr(name.size() + 1);
  }
  return value;
}

// `name = "value"` of a file of options, without quotes; empty: it is not given.
std::string SettingIn(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    line = line.substr(0, line.find('#'));
    for (const char c : {' ', '\t', '\r', '"', '\''}) std::erase(line, c);
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return "";
}

// The value of one of an agent's options; empty: it is not given.
std::string OptionOf(const std::string& root, const std::string& process, const std::string& name) {
  std::ifstream in(root + "/proc/" + process + "/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  std::string config = OptionIn(arguments, "--config");
  if (config.starts_with("-")) config.erase(0, 1);  // may be absent
  const std::string given = OptionIn(arguments, "--" + name);
  return given.empty() && !config.empty() ? SettingIn(root + config, name) : given;
}

// By which option an agent has no control groups; empty: by none.
std::string UnwantedBy(const std::string& root, const std::string& process) {
  if (OptionOf(root, process, "control-groups") == "off") return "--control-groups off";
  if (OptionOf(root, process, "launcher") == "slurm") return "--launcher slurm";
  return "";
}

std::string WhyCpusAreShared(const std::string& root, const std::string& agent,
                             const control_group::Delegation& seen) {
  if (agent.empty()) return control_group::WhyCpusAreShared(seen, root);
  if (OptionOf(root, agent, "control-groups") == "no-cpuset") return "--control-groups no-cpuset";
  const std::string why = control_group::WhyCpusAreShared(seen, root, agent);
  if (!why.empty() || seen.HasEnabled("cpuset")) return why;
  return "the controller cpuset is not enabled: see what the agent's log says of control groups";
}

bool IsVersion1Mounted(const std::string& root) {
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.find(" - cgroup ") != std::string::npos) return true;
  }
  return false;
}

// The last word of systemd's file NAME.conf and what is beside it in NAME.conf.d; empty: none.
std::string LastSetting(const std::string& root, const std::string& name, const std::string& key) {
  constexpr const char* kFolders[] = {"/usr/lib/systemd/", "/usr/local/lib/systemd/",
                                      "/run/systemd/", "/etc/systemd/"};
  std::string whole;                         // the file of the last folder that has one
  std::map<std::string, std::string> parts;  // by name: in a later folder it replaces the other
  for (const char* folder : kFolders) {
    const std::string at = base::Text(root, folder, name);
    if (access(at.c_str(), R_OK) == 0) whole = at;
    base::VisitNames(at + ".d", [&](const std::string& part) {
      if (part.ends_with(".conf")) parts[part] = base::Text(at, ".d/", part);
    }).IgnoreError();
  }
  std::vector<std::string> files = {whole};
  for (const auto& [part, path] : parts) files.push_back(path);
  std::string setting;
  for (const std::string& path : files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(key + "=")) setting = line.substr(key.size() + 1);
    }
  }
  return setting;
}

}  // namespace

Limits MeasureLimits() {
  Limits limits;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limits.open_files = LimitOf(limit.rlim_cur);
    limits.most_open_files = LimitOf(limit.rlim_max);
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) limits.locked_bytes = LimitOf(limit.rlim_cur);
  // Root may lock as much as it likes, whatever the limit says.
  if (geteuid() == 0) limits.locked_bytes = kUnlimited;
  if (getrlimit(RLIMIT_NPROC, &limit) == 0) limits.processes = LimitOf(limit.rlim_cur);
  return limits;
}

Space MeasureSpace(const std::string& folder) {
  Space space;
  space.folder = folder;
  struct statvfs about {};
  if (statvfs(folder.c_str(), &about) != 0) {
    space.fault = absl::ErrnoToStatus(errno, folder);
    return space;
  }
  space.total_bytes = uint64_t{about.f_blocks} * about.f_frsize;
  space.free_bytes = uint64_t{about.f_bavail} * about.f_frsize;
  std::string probe = folder + "/.trireme-check-XXXXXX";
  const int fd = mkstemp(probe.data());
  if (fd < 0) {
    space.fault = absl::ErrnoToStatus(errno, folder + ": nothing can be written there");
    return space;
  }
  close(fd);
  unlink(probe.c_str());
  return space;
}

Network MeasureNetwork() {
  Network network;
  network.loopback = TryLoopback();
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range >> network.first_port >> network.last_port;
  return network;
}

absl::Status TryListening(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return absl::InvalidArgumentError("no address; expected HOST:PORT");
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                address.substr(colon + 1).c_str(), &wanted, &found);
  if (error != 0) return absl::InvalidArgumentError(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, freeaddrinfo);
  const Socket server(found->ai_family);
  const int yes = 1;
  // As a daemon does: what a former connection has left behind is no obstacle.
  setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(server.get(), found->ai_addr, found->ai_addrlen) != 0 || listen(server.get(), 1) != 0) {
    const absl::StatusCode code = errno == EADDRNOTAVAIL ? absl::StatusCode::kInvalidArgument
                                  : errno == EACCES      ? absl::StatusCode::kPermissionDenied
                                                         : absl::StatusCode::kFailedPrecondition;
    return {code, std::strerror(errno)};
  }
  return absl::OkStatus();
}

bool ClockInStep() {
  timex clock{};
  return adjtimex(&clock) != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
}

std::string HugePageSetting() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string setting;
  std::getline(file, setting);
  return setting;
}

Logout LookAtLogout(const std::string& root) {
  Logout logout{.user = geteuid()};
  const passwd* const user = getpwuid(logout.user);
  logout.name = user == nullptr ? std::to_string(logout.user) : user->pw_name;
  logout.logind = access((root + "/run/systemd/seats").c_str(), F_OK) == 0;
  const std::string setting = LastSetting(root, "logind.conf", "RemoveIPC");
  constexpr std::array kNo = {"no", "false", "off", "0", "n", "f"};
  logout.removes = std::find(kNo.begin(), kNo.end(), setting) == kNo.end();
  logout.stays = access((root + "/var/lib/systemd/linger/" + logout.name).c_str(), F_OK) == 0;
  return logout;
}

ControlGroups LookAtControlGroups(const std::string& root) {
  ControlGroups groups;
  std::string agent;
  base::VisitNames(root + "/proc", [&](const std::string& name) {
    if (agent.empty() && base::NumberIn(name) && IsAgent(root + "/proc/" + name)) agent = name;
  }).IgnoreError();
  groups.agent = !agent.empty();
  const control_group::Delegation seen =
      control_group::FindDelegation(root, groups.agent ? agent : "self");
  groups.kind = seen.kind;
  groups.folder = seen.folder;
  groups.kills = seen.kills;
  groups.version1 = IsVersion1Mounted(root);
  if (groups.agent) groups.unwanted = UnwantedBy(root, agent);
  for (const char* controller : {"memory", "pids"}) {
    const bool there = groups.agent ? seen.HasEnabled(controller) : seen.Has(controller);
    if (there) groups.limits.emplace_back(controller);
  }
  groups.shared_cpus = WhyCpusAreShared(root, agent, seen);
  return groups;
}

}  // namespace trireme::checkup
