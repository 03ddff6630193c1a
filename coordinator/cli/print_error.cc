#include "coordinator/cli/print_error.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "coordinator/client/call_status.h"
#include "coordinator/client/error_details.h"
#include "runtime/base/status_macros.h"
#include "runtime/json/json_text.h"

namespace trireme::cli {
namespace {

using nlohmann::ordered_json;

// Of the process, set once before the first error: each subcommand prints its own.
bool as_json = false;

void PrintLine(const ordered_json& line) {
  // Bytes of files and peers may be no UTF-8.
  const std::string text = json_text::Write(line);
  std::fprintf(stderr, "%s\n", text.c_str());
}

ExitCode Print(const absl::Status& status, ExitCode code) {
  const std::string message = base::MessageOf(status);
  if (!as_json) {
    std::fprintf(stderr, "trireme: %s\n", message.c_str());
    return code;
  }
  ordered_json details = ordered_json::array();
  for (const v1::ErrorDetail& detail : client::ErrorDetailsOf(status)) {
    details.push_back({{"field", detail.field()}, {"message", detail.message()}});
  }
  PrintLine({{"error",
              {{"code", absl::StatusCodeToString(status.code())},
               {"exit_code", static_cast<int>(code)},
               {"message", message},
               {"details", details}}}});
  return code;
}

}  // namespace

void PrintErrorsAsJson() { as_json = true; }

ExitCode PrintError(const absl::Status& status) { return Print(status, base::ExitCodeOf(status)); }

ExitCode PrintCallError(const absl::Status& status) {
  return Print(status, client::ExitCodeOfCall(status));
}

void PrintWarning(const std::string& message) {
  if (as_json) return PrintLine({{"warning", {{"message", message}}}});
  std::fprintf(stderr, "trireme: warning: %s\n", message.c_str());
}

}  // namespace trireme::cli
