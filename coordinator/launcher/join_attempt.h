// The helper that mpirun's remote shell starts on a node in place of Open MPI's daemon: by the
// agent of that node the daemon, and with it its ranks, is in the attempt's control group there
// (docs/adr/0022). Where that cannot be, it executes the daemon itself, as if it were not there.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace trireme::launcher {

// The subcommand of trireme-agent, and the word that makes it say what to put before a command.
inline constexpr char kJoinAttempt[] = "join-attempt";
inline constexpr char kJoinOffer[] = "--offer";

// Where an agent listens for helpers, by the session folder of the attempt
// (launcher::TemporaryFolders).
std::string JoinSocket(const std::string& session_folder);

// mpirun's orte_launch_agent: words for the remote shell. A program that is not there, or does not
// know the subcommand, offers nothing, and the daemon is started as ever. Empty: there are letters
// in the names that a shell would not leave alone.
std::string JoiningLaunchAgent(const std::string& program, const std::string& session_folder);

// How long an agent is waited for that has not heard of the attempt yet, or is being started anew.
inline constexpr std::chrono::milliseconds kJoinLimit{10000};

struct JoinAnswer {
  std::optional<int> exit_code;  // of the command; nullopt: it was not started, and is to be here
  std::string why_not;           // empty: nothing to complain of
};
// Has the agent run `argv` (argv[0] a path) with what this process has, and waits for its end.
JoinAnswer RunJoined(const std::string& session_folder, const std::vector<std::string>& argv,
                     std::chrono::milliseconds limit = kJoinLimit);

// The subcommand: SESSION_FOLDER COMMAND ARGUMENT..., or --offer SESSION_FOLDER. Returns an exit
// code, or is the command by then. `program`: argv[0] of this process.
int JoinAttempt(const std::string& program, std::vector<std::string> words);

}  // namespace trireme::launcher
