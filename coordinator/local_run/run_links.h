// RUN/logs and RUN/recorder: where people and scripts look, links to those of the newest attempt.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::coordinator {

// The attempt's folder need not be there yet. Replaces older links at one stroke; a real folder of
// the name becomes NAME.before. What cannot be linked stays as it is: nothing depends on it.
void LinkAttempt(const std::string& run_folder, uint32_t attempt);

}  // namespace trireme::coordinator
