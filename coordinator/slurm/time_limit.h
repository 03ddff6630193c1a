// Slurm's notation of a time limit.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace trireme::slurm {

// MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, DAYS-HOURS:MINUTES or
// DAYS-HOURS:MINUTES:SECONDS, more than zero. InvalidArgument says so.
absl::StatusOr<std::chrono::seconds> ParseTimeLimit(const std::string& text);

// How long before its time limit a job is told to save: five minutes, less where that would be more
// than a third of the time.
std::chrono::seconds WarningBefore(std::chrono::seconds limit);
inline constexpr std::chrono::seconds kLongestWarning{300};

}  // namespace trireme::slurm
