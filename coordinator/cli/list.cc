// `trireme list`: jobs, newest first.
#include <cstdio>

#include "coordinator/cli/control.h"
#include "coordinator/cli/job_lookup.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/text_table.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/report/progress.h"

namespace trireme::cli {
namespace {

absl::StatusOr<v1::ListRequest> RequestOf(const ListOptions& options) {
  v1::ListRequest request;
  request.set_owner(options.owner);
  request.set_name(options.name);
  for (const std::string& word : options.states) {
    ASSIGN_OR_RETURN(const v1::JobState state, ParseState(word));
    request.add_states(state);
  }
  if (!options.states.empty() || options.all) return request;
  for (int state = v1::JOB_PENDING; state <= v1::JobState_MAX; ++state) {
    if (!HasEnded(static_cast<v1::JobState>(state))) {
      request.add_states(static_cast<v1::JobState>(state));
    }
  }
  return request;
}

void PrintTable(const v1::ListResponse& list) {
  TextTable table({"JOB", "NAME", "OWNER", "STATE", "SINCE", "STEP", "NOTE"}, {0, 4, 5});
  table.Shrink({1, 2});
  const bool color = report::StyleOf(stdout).color;
  const int64_t now = NowUnixNs();
  for (const v1::Job& job : list.jobs()) {
    table.Add({{std::to_string(job.id())},
               {job.name()},
               {job.owner().empty() ? "-" : job.owner()},
               StateCell(job.status().state(), color),
               {Ago(job.status().changed_unix_ns(), now)},
               {StepsOf(job)},
               {Shown(NoteOf(job))}});
  }
  std::fputs(table.Text(TerminalWidth()).c_str(), stdout);
}

}  // namespace

int RunList(const ControlOptions& control, const ListOptions& options) {
  const auto request = RequestOf(options);
  if (!request.ok()) return PrintError(request.status());
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto list = ListAll(**client, *request);
  if (!list.ok()) return PrintCallError(list.status());
  if (control.json) {
    PrintJsonLine(*list);
  } else if (list->jobs().empty()) {
    std::printf("no jobs%s\n", options.all || !options.states.empty()
                                   ? ""
                                   : " that have not ended; --all shows the others");
  } else {
    PrintTable(*list);
  }
  return kOk;
}

}  // namespace trireme::cli
