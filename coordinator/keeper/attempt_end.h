// What the end of an attempt leaves to be told. Reads files, changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/launcher/diagnosis.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

// Headline of an end by our own kill, which no rank came before.
inline constexpr char kKilledAsAsked[] = "killed as asked";

// Why the ranks of an attempt folder ended, the first failing rank first. `seen_dead`: the rank
// that the keeper saw die before the others, for the ends that mpirun does not name. The kernel's
// kills for want of memory are named (NameMemoryKill).
v1::Failure DiagnosedFailure(const std::string& attempt_folder, const v1::LaunchSpec& launch,
                             const launcher::LaunchResult& result,
                             const std::optional<v1::RankReport>& seen_dead);
// The guard has ended without a verdict: nobody knows the exit code, so it is 137. `killed`: we
// were asked to, so its end is no surprise.
v1::Failure VanishedFailure(const std::string& attempt_folder, const v1::LaunchSpec& launch,
                            bool killed);
// It is gone from its node, and `why` its verdict cannot be read: that is 137, too.
v1::Failure UnreadFailure(const std::string& node, const std::string& why, bool killed);
v1::Failure UnstartedFailure(uint32_t attempt, const std::string& why, int exit_code);

struct SavedSoFar {
  uint64_t step = 0;  // of the newest checkpoint; 0: none
  std::string fails;  // why saves have failed since; empty: they have not
};
// Of the attempt with this folder of recorders. What else lies among the run's checkpoints, of an
// earlier attempt or another job, does not count, whatever its step: a job that went back behind a
// damaged one comes to the same steps again.
SavedSoFar SavesOf(const v1::LaunchSpec& launch, const std::string& recorder_folder);

}  // namespace trireme::keeper
