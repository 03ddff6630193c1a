// Durations as people say them.
#pragma once

#include <chrono>
#include <string>

namespace trireme::base {

// The two largest units, rounded up: "2 h", "1 h 30 min", "3 d 4 h", "45 s". Of less than nothing,
// "0 s".
std::string DurationText(std::chrono::nanoseconds duration);

}  // namespace trireme::base
