#include "coordinator/cli/away.h"

#include <cstdio>

#include "coordinator/cli/print_error.h"
#include "coordinator/client/default_socket.h"
#include "runtime/base/text.h"

namespace trireme::cli {

std::string AwayText(const ControlOptions& control, bool away) {
  if (!away) return "the coordinator is back";
  const client::ClientOptions& connection = control.connection;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(connection.reconnect_for);
  return base::Text(
      "the coordinator at ",
      connection.address.empty() ? "unix:" + client::DefaultSocketPath() : connection.address,
      " is away; waiting for it, for ", seconds.count(), " s at most");
}

void TellAway(const ControlOptions& control, bool away) {
  const std::string text = AwayText(control, away);
  if (control.json) return PrintWarning(text);
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace trireme::cli
