#include "coordinator/client/default_socket.h"

#include <unistd.h>

#include <cstdlib>

#include "runtime/base/text.h"

namespace trireme::client {

std::string DefaultSocketPath() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return base::Text(runtime, "/trireme/triremed.sock");
  if (geteuid() == 0) return "/run/trireme/triremed.sock";
  return base::Text("/tmp/trireme-", geteuid(), "/triremed.sock");
}

std::string DefaultStateFolder() {
  if (geteuid() == 0) return "/var/lib/trireme";
  const char* home = std::getenv("HOME");
  return base::Text(home == nullptr ? "." : home, "/.local/state/trireme");
}

}  // namespace trireme::client
