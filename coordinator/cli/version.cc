// `trireme version`.
#include <cstdio>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/print_error.h"

namespace trireme::cli {

int RunVersion() {
  std::printf("trireme %s\n", TRIREME_VERSION);
  return kOk;
}

}  // namespace trireme::cli
