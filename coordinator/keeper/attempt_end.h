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
// that the keeper saw die before the others, for the ends that mpirun does not name.
v1::Failure DiagnosedFailure(const std::string& attempt_folder,
                             const launcher::LaunchResult& result,
                             const std::optional<v1::RankReport>& seen_dead);
// The guard has ended without a verdict: nobody knows the exit code, so it is 137.
v1::Failure VanishedFailure(const std::string& attempt_folder);
v1::Failure UnstartedFailure(uint32_t attempt, const std::string& why, int exit_code);

// Number of the newest `step-*` folder of the run's checkpoints; 0: none.
uint64_t NewestCheckpointStep(const v1::LaunchSpec& launch);

}  // namespace trireme::keeper
