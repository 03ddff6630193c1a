#include "tests/coordinator/cli/control_room.h"

namespace trireme::cli {

std::string Program() { return TRIREME_BINARY_DIR "/bin/trireme"; }

}  // namespace trireme::cli
