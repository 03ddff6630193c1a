// `trireme dashboard`: a link for a browser, alone on stdout.
#include <cstdio>

#include "coordinator/cli/control.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"

namespace trireme::cli {

int RunDashboard(const ControlOptions& control) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto opened = (*client)->Call(v1::OpenDashboardRequest());
  if (!opened.ok()) return PrintCallError(opened.status());
  if (control.json) {
    PrintJsonLine(*opened);
    return kOk;
  }
  std::printf("%s\n", Shown(opened->url()).c_str());
  std::fprintf(stderr, "opens once, within five minutes\n");
  return kOk;
}

}  // namespace trireme::cli
