#include "coordinator/checkup/programs.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <utility>

#include "coordinator/process/command.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkup {
namespace {

using base::Text;
using process::FirstLine;

constexpr std::chrono::milliseconds kToolDeadline{10'000};

// A folder that goes with all that is in it.
class Folder {
 public:
  explicit Folder(const std::string& base) {
    std::string path = base + "/trireme-check-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// As jobs are started: more ranks than cores are fine, and nothing is bound. A rank dies with its
// mpirun, should that be killed at the deadline.
absl::Status Hello(const std::string& mpirun, const std::string& worker,
                   std::chrono::milliseconds deadline) {
  // In /tmp because Open MPI puts sockets there, whose paths are short.
  const Folder session("/tmp"), shared("/dev/shm");
  if (session.path().empty() || shared.path().empty()) {
    return absl::FailedPreconditionError("cannot make folders in /tmp and /dev/shm");
  }
  process::Command command;
  command.argv = {mpirun, "-n", "2", "--oversubscribe", "--bind-to", "none"};
  if (geteuid() == 0) command.argv.emplace_back("--allow-run-as-root");
  for (const auto& [name, value] :
       {std::pair<std::string, std::string>("orte_tmpdir_base", session.path()),
        {"btl_vader_backing_directory", shared.path()},
        // Some containers forbid ranks to read each other's memory.
        {"btl_vader_single_copy_mechanism", "none"},
        {"mpi_yield_when_idle", "1"}}) {
    command.argv.insert(command.argv.end(), {"--mca", name, value});
  }
  if (!process::FindProgram("setpriv").empty()) {
    command.argv.insert(command.argv.end(), {"setpriv", "--pdeathsig", "KILL"});
  }
  command.argv.insert(command.argv.end(), {worker, "hello"});
  command.environment = {"OMP_NUM_THREADS=1"};
  command.deadline = deadline;
  ASSIGN_OR_RETURN(const process::CommandResult result, process::RunCommand(command));
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      Text("exit code ", result.exit_code, ": ", FirstLine(result.errors)));
}

absl::StatusOr<std::string> Ask(std::vector<std::string> argv) {
  process::Command command;
  command.argv = std::move(argv);
  command.deadline = kToolDeadline;
  return process::OutputOf(command);
}

}  // namespace

Mpi AskMpi(const std::string& worker, std::chrono::milliseconds deadline) {
  Mpi mpi;
  mpi.mpirun = process::FindProgram("mpirun");
  if (mpi.mpirun.empty()) return mpi;
  const auto version = Ask({mpi.mpirun, "--version"});
  mpi.version = version.ok() ? FirstLine(*version) : base::MessageOf(version.status());
  mpi.launched = Hello(mpi.mpirun, worker, deadline);
  return mpi;
}

Slurm AskSlurm() {
  Slurm slurm;
  slurm.sbatch = process::FindProgram("sbatch");
  if (slurm.sbatch.empty()) return slurm;
  const auto version = Ask({slurm.sbatch, "--version"});
  slurm.version = version.ok() ? FirstLine(*version) : base::MessageOf(version.status());
  // Exits with 1 if no controller answers.
  slurm.controller = Ask({"scontrol", "ping"}).status();
  // Without a slurm.conf sbatch cannot even say its version.
  slurm.set_up = version.ok();
  if (!slurm.set_up) return slurm;
  process::Command list;
  list.argv = {"srun", "--mpi=list"};
  list.deadline = kToolDeadline;
  if (const auto said = process::RunCommand(list); said.ok()) {
    slurm.plugins = PluginsOf(said->output + said->errors);
  }
  return slurm;
}

// "MPI plugin types are...\n\tnone\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n";
// older ones say it as a message, "srun: pmix".
std::vector<std::string> PluginsOf(const std::string& list) {
  std::vector<std::string> plugins;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, more;
    words >> name;
    if (name == "srun:") words >> name;
    // Lines of several words are no names.
    if (!name.empty() && !(words >> more) && name != "none") plugins.push_back(name);
  }
  return plugins;
}

}  // namespace trireme::checkup
