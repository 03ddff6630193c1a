#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace trireme::base {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::fflush(nullptr);
  std::abort();
}

}  // namespace trireme::base
