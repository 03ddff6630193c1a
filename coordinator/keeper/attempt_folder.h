// The folder of an attempt, RUN/attempts/N: what the guard says there, what is said to it, and the
// folders outside it that the ranks use while they run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  kUnreadable,  // the disk answers with an error; look again
};

struct Seen {
  Sight sight = Sight::kNothing;
  launcher::ProcessIdentity guard;  // kLive
  int exit_code = 0;                // kExited, kRefused; of a Slurm job kVanished
  // kQueued: what it waits for. kRefused, kUnreadable and, of a Slurm job, kVanished: why.
  std::string words;
  std::string next_action;  // with the words of kVanished
};

// The highest number of a folder in RUN/attempts; 0: none. Unavailable: the disk does not say.
absl::StatusOr<uint32_t> NewestAttemptFolder(const std::string& run_folder);

// What RUN/attempts/N/attempt.json says.
struct AttemptOwner {
  uint64_t job_id = 0;
  uint32_t attempt = 0;
  v1::StorePosition store;         // without `sequence`; an epoch of 0: of before stores had names
  std::vector<std::string> nodes;  // of its ranks

  bool IsNamed() const { return store.epoch() != 0; }
  bool IsSameAttempt(const AttemptOwner& other) const;
};
// NotFound: the folder has no such file; else why it cannot be read.
absl::StatusOr<AttemptOwner> ReadOwner(const std::string& attempt_folder);
// What its guard has left; nullopt: nothing yet.
std::optional<int> ExitCodeOf(const std::string& attempt_folder);
// Its guard has left its verdict, or it is sealed: nothing of it is left, or ever will be.
bool IsOver(const std::string& attempt_folder);

// Of LaunchSpec.key: names with it cannot be guessed, and lead nowhere else.
bool IsLaunchKey(const std::string& key);

enum class Whose {
  kOurs,
  kNotOurs,  // another attempt's, or not made yet
  kUnknown,  // the disk does not say; look again
};

class AttemptFolder {
 public:
  explicit AttemptFolder(const v1::DesiredAttempt& attempt);
  const std::string& path() const { return path_; }
  // Of all attempts of all jobs of all run folders: "trireme-7-1-89abcdef". Anybody can tell it.
  const std::string& unique_name() const { return unique_name_; }
  bool Exists() const;
  // With logs/, recorder/ and attempt.json, which says whose it is, on the disk when this returns;
  // what is there already is let be. AlreadyExists: it is another attempt's, of another store or of
  // another history of this one (docs/adr/0018).
  absl::Status Make() const;
  // Of an attempt without a store, of before, every folder is its own.
  Whose whose() const;
  // What stands in another attempt's folder is nothing; of one that does not say it is unreadable.
  Seen Look() const;
  // For guards of other machines, whose processes cannot be looked for.
  bool IsOver() const;
  // From now on, also after a power cut, no guard starts anything here. AlreadyExists: one has.
  // Another attempt's folder is let be: nothing of ours starts there.
  absl::Status Seal() const;
  // To the guard's FIFO; false if there is none. Never blocks.
  bool Ask(char request) const;

  // By its launch's key the same for every keeper, and nobody else's to make first. Without a key,
  // as of an attempt that a coordinator of before has launched, by unique_name().
  launcher::TemporaryFolders temporary_folders() const;
  // Where ranks dial the keeper of their node.
  std::string link_socket() const { return temporary_folders().session + "/link"; }
  // Which are to be used: a machine whose /dev/shm gives none uses /tmp for both. An error if
  // the one in /tmp is there and not ours alone (base::OpenOwnFolder).
  absl::StatusOr<launcher::TemporaryFolders> MakeTemporaryFolders() const;
  void RemoveTemporaryFolders() const;

 private:
  std::string path_;
  std::string unique_name_;
  std::string temporary_name_;
  AttemptOwner owner_;
  mutable bool ours_ = false;  // as seen once
};

}  // namespace trireme::keeper
