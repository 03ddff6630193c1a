// `trireme backup`: the daemon's store as a file on its machine, written by the daemon. The file's
// name alone on stdout.
#include <cstdio>
#include <optional>

#include "coordinator/cli/control.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/transfer.h"
#include "runtime/base/readable_bytes.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::cli {
namespace {

// What became of it; nothing: Ctrl-C.
absl::StatusOr<std::optional<v1::BackupResponse>> BackUp(client::Client& client,
                                                         const std::string& folder, bool json) {
  v1::BackupRequest request;
  request.set_folder(folder);
  const auto stream = client.Backup(request);
  TransferLine line(!json);
  v1::BackupResponse last;
  const auto whole = TakeAll(*stream, [&](const v1::BackupResponse& response) {
    if (json) PrintJsonLine(response);
    line.Show(response.file(), response.bytes_done(), response.bytes_total());
    last = response;
    return absl::OkStatus();
  });
  if (absl::IsUnavailable(whole.status())) {
    return base::Annotate(whole.status(), "there is no backup, and nothing is left of it");
  }
  if (!whole.ok()) return whole.status();
  if (!*whole) return std::nullopt;
  if (!last.done()) return absl::InternalError("the coordinator has not said that it is done");
  return last;
}

}  // namespace

int RunBackup(const ControlOptions& control, const std::string& folder) {
  const auto absolute = AbsoluteFolder("FOLDER", folder);
  if (!absolute.ok()) return PrintError(absolute.status());
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto end = BackUp(**client, *absolute, control.json);
  if (!end.ok()) return PrintCallError(end.status());
  if (!*end) {
    PrintError(absl::CancelledError("given up by Ctrl-C; the coordinator removes what there was"));
    return kCancelled;
  }
  if (control.json) return kOk;
  const v1::BackupResponse& made = **end;
  std::printf("%s\n", made.file().c_str());
  std::fflush(stdout);
  const std::string text =
      base::Text(base::Counted(made.jobs(), "job"), " and ", base::Counted(made.events(), "event"),
                 " in ", base::ReadableBytes(made.bytes_done()), ", checked");
  std::fprintf(stderr, "%s\n", text.c_str());
  return kOk;
}

}  // namespace trireme::cli
