// The folder of an attempt, RUN/attempts/N: what the guard says there, what is said to it, and the
// folders outside it that the ranks use while they run.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/launcher/launch_command.h"
#include "coordinator/launcher/process_identity.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

enum class Sight {
  kNothing,     // nobody has claimed it; nothing runs yet
  kQueued,      // nobody has claimed it yet, but what will is in the queue of somebody else
  kRefused,     // what was to claim it never will
  kSealed,      // nothing ever will
  kLive,        // its guard lives
  kExited,      // its guard has ended in order: nothing is left
  kVanished,    // its guard is gone without a verdict: something may be left
  kUnreadable,  // the disk does not say; look again
};

struct Seen {
  Sight sight = Sight::kNothing;
  launcher::ProcessIdentity guard;  // kLive
  int exit_code = 0;                // kExited, kRefused; of a Slurm job kVanished
  // kQueued: what it waits for. kRefused and, of a Slurm job, kVanished: why.
  std::string words;
  std::string next_action;  // with the words of kVanished
};

// The highest number of a folder in RUN/attempts; 0: none.
uint32_t NewestAttemptFolder(const std::string& run_folder);

class AttemptFolder {
 public:
  explicit AttemptFolder(const v1::DesiredAttempt& attempt);
  const std::string& path() const { return path_; }
  // Of all attempts of all jobs of all run folders: "trireme-7-1-89abcdef".
  const std::string& unique_name() const { return unique_name_; }
  bool Exists() const;
  // With logs/ and recorder/, on the disk when this returns; what is there already is let be.
  absl::Status Make() const;
  Seen Look() const;
  // For guards of other machines, whose processes cannot be looked for.
  bool IsOver() const;
  // From now on, also after a power cut, no guard starts anything here. AlreadyExists: one has.
  absl::Status Seal() const;
  // To the guard's FIFO; false if there is none. Never blocks.
  bool Ask(char request) const;

  // By name alone the same for every keeper, so none is forgotten.
  launcher::TemporaryFolders temporary_folders() const;
  // Where ranks dial the keeper of their node.
  std::string link_socket() const { return temporary_folders().session + "/link"; }
  // Which are to be used: a machine whose /dev/shm gives none uses /tmp for both. An error if
  // somebody else owns the one in /tmp.
  absl::StatusOr<launcher::TemporaryFolders> MakeTemporaryFolders() const;
  void RemoveTemporaryFolders() const;

 private:
  std::string path_;
  std::string unique_name_;
};

}  // namespace trireme::keeper
