// What `trireme-agent join-attempt` and the agent of its node say to each other, over a unix socket
// in a folder that is their user's alone:
//
//   helper  a header, with descriptors 0, 1 and 2 as SCM_RIGHTS, and the request
//   agent   kJoinReady, or kJoinNone, or kJoinRefused
//   helper  kJoinGo; before it may change its mind by hanging up, and nothing has been started
//   agent   when the command has ended, its exit code as one byte
//
// Who says anything else is hung up on. Both programs are of one package, but may be of two
// versions of it while a node is upgraded: the header's first bytes say which this is.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::launcher {

inline constexpr char kJoinReady = 'R';
inline constexpr char kJoinNone = 'N';     // no group here: the helper runs the command itself
inline constexpr char kJoinRefused = 'X';  // the attempt is to end: nothing is to run
inline constexpr char kJoinGo = 'G';

// A command as it would run if its helper executed it.
struct JoinRequest {
  std::vector<std::string> argv;         // argv[0] is a path
  std::vector<std::string> environment;  // the whole of it, "NAME=value"
  std::string working_folder;
  mode_t umask = 022;
  struct Limit {
    int resource = 0;
    rlimit value{};
  };
  std::vector<Limit> limits;
  std::array<int, 3> standard_fds{0, 1, 2};
};

// Of this process.
JoinRequest RequestOfThisProcess(std::vector<std::string> argv);

// By `until_ms` of JoinClockMs. The descriptors stay the caller's.
absl::Status SendRequest(int socket, const JoinRequest& request, int64_t until_ms);
// The descriptors are the caller's to close, also where there is an error: those that came are
// closed then.
absl::StatusOr<JoinRequest> ReceiveRequest(int socket, int64_t until_ms);
absl::Status SendByte(int socket, char byte, int64_t until_ms);
absl::StatusOr<char> ReceiveByte(int socket, int64_t until_ms);

// CLOCK_MONOTONIC.
int64_t JoinClockMs();

}  // namespace trireme::launcher
