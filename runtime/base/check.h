// CHECK: a broken invariant of our own code. Never on user input, peer bytes or file contents.
#pragma once

namespace trireme::base {
// Writes file, line and condition to stderr, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace trireme::base

#define TRIREME_CHECK(condition)                                                    \
  do {                                                                              \
    if (!(condition)) ::trireme::base::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
