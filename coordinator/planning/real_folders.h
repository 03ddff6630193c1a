// Folders that every job's paths are compared with, by their real names: found out once, so that a
// check waits for no disk but those of its job.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/steady_wait.h"

namespace trireme::coordinator {

// Threads: any.
class RealFolders {
 public:
  // Has `work`, which owns what it touches and may hang with `folder`, done elsewhere; an error: it
  // will not be. Does not block.
  using Elsewhere =
      std::function<absl::Status(const std::string& folder, std::function<void()> work)>;

  // Begins to look for all of them.
  RealFolders(const std::vector<std::string>& folders, Elsewhere elsewhere);
  // Until all have been looked at, or hang for so long.
  void Wait(std::chrono::milliseconds most) const;
  // Where links led when it was looked at, also of one that is not there, as it is written.
  // Nothing: it could not be looked at. What was not there or could not be is looked for again, for
  // the next time.
  std::optional<std::filesystem::path> Of(const std::string& folder) const;

 private:
  struct Folder {
    std::optional<std::filesystem::path> real;
    bool there = false;
    bool asked = false;  // a look is under way
  };
  struct State {  // of looks that hang too
    absl::Mutex mutex;
    base::SteadyCondVar fewer_asked;
    std::map<std::string, Folder> folders ABSL_GUARDED_BY(mutex);
    bool NoneAsked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  };
  void Ask(const std::string& folder) const;

  const Elsewhere elsewhere_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace trireme::coordinator
