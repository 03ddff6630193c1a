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

std::string StepsOf(const v1::Job& job) {
  if (job.progress().steps_total() == 0) {
    const uint64_t step = job.status().checkpoint_step();
    return step == 0 ? "-" : base::Text(step);
  }
  return base::Text(job.progress().steps_done(), "/", job.progress().steps_total());
}

// What a person would ask next: why it waits, where it runs, how it ended.
std::string NoteOf(const v1::Job& job) {
  if (job.status().state() == v1::JOB_PENDING && !job.waits_for().empty()) {
    return base::Text("#", job.queue_position(), ": ", job.waits_for());
  }
  if (job.status().state() == v1::JOB_RUNNING && job.places_size() > 0) {
    return "on " + PlacesText(job.places());
  }
  if (job.status().state() == v1::JOB_FAILED && !job.status().failure().headline().empty()) {
    return job.status().failure().headline();
  }
  return job.status().reason();
}

void PrintTable(const v1::ListResponse& list) {
  TextTable table({"JOB", "NAME", "OWNER", "STATE", "SINCE", "STEP", "NOTE"}, {0, 4, 5});
  const bool color = report::StyleOf(stdout).color;
  const int64_t now = NowUnixNs();
  for (const v1::Job& job : list.jobs()) {
    const v1::JobState state = job.status().state();
    const std::string paint = Painted("|", state, color);
    const size_t bar = paint.find('|');
    table.Add({{std::to_string(job.id())},
               {job.name()},
               {job.owner().empty() ? "-" : job.owner()},
               {StateWord(state), paint.substr(0, bar), paint.substr(bar + 1)},
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
