// `trireme version`.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"

namespace trireme::cli {

int RunVersion(bool json) {
  if (json) {
    PrintJsonObject({{"version", TRIREME_VERSION}});
    return kOk;
  }
  std::printf("trireme %s\n", TRIREME_VERSION);
  return kOk;
}

}  // namespace trireme::cli
