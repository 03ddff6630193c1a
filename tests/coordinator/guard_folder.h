// A folder for a guard under test: spoken to and heard by its files alone. Every wait has a limit.
#pragma once

#include <string>

#include "coordinator/launcher/process_guard.h"
#include "coordinator/launcher/process_identity.h"

namespace trireme::launcher {

std::string Slurp(const std::string& path);

class GuardFolder {
 public:
  GuardFolder();
  GuardFolder(const GuardFolder&) = delete;
  // Ends a guard that a failed test has left.
  ~GuardFolder();
  // A shell script, with a temporary folder PATH/left and its output in PATH/log.
  GuardedCommand Command(const std::string& script) const;
  // All -1 or 0 if guard.json does not say.
  ProcessIdentity Guard() const;
  void Ask(char request) const;
  bool HasExit() const;
  // The exit code, once it is there; -1: none came.
  int Exit() const;
  // Until no guard holds the FIFO open: whatever one might do, it has done.
  void AwaitGone() const;
  // Until `text` is in the file `name`.
  void Await(const std::string& name, const std::string& text) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace trireme::launcher
