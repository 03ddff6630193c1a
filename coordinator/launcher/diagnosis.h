// After a failure: which rank was the first cause, where it was, what the others did, and what to
// do next. Evidence: the flight recorders (they outlive the ranks), mpirun's words and the ranks'
// logs. Reads files, changes nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/recorder/flight_recorder.h"

namespace trireme::launcher {

struct LaunchResult {
  int exit_code = 0;  // mpirun's: that of the first rank that failed, 128 + n for a signal
  bool stop_requested = false;
  bool killed = false;
  bool by_srun = false;  // else by mpirun
};

struct Diagnosis {
  int rank = -1;      // the first cause; -1: unknown
  int signal = 0;     // that ended it; 0: none
  uint64_t step = 0;  // of that rank
  bool own = false;   // it has said so itself, and blames nobody else
  std::string
      headline;  // "rank 3 died (signal 9, Killed) at step 12, I of micro-batch 2, virtual stage 0"
  std::vector<std::string> others;    // "rank 1: REDUCE, step 12", "ranks 0, 2: ..."
  std::vector<std::string> evidence;  // lines of mpirun and of the rank's log
  std::string log_path;               // of that rank, else mpirun's
  std::string next_action;            // what to mend; how to go on is the caller's to say
};

// What mpirun says about the end of ranks.
struct MpirunWords {
  struct Death {
    int rank = -1;
    int signal = 0;     // 0: it exited
    int exit_code = 0;  // if it exited
    std::string line;
  };
  std::vector<Death> deaths;  // in the order said
};
MpirunWords ParseMpirunWords(const std::string& text);

// With what the rank that mpirun named first has exited; nullopt: it named none. For an mpirun that
// a late request to stop has ended before it could pass this on.
std::optional<int> ExitCodeSaid(const std::string& run_folder);

// Pure: the first cause among recordings (by rank; a rank that left none is absent) and mpirun's
// words.
Diagnosis FindCause(const std::map<int, recorder::Recording>& recordings, const MpirunWords& words,
                    const LaunchResult& result);

// Reads the run folder and calls FindCause.
Diagnosis Diagnose(const std::string& run_folder, const LaunchResult& result);

}  // namespace trireme::launcher
