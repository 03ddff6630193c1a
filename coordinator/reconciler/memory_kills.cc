// The failure in the report of a node that did not launch the attempt is of nothing else.
#include "coordinator/reconciler/memory_kills.h"

#include "coordinator/job_machine/job_machine.h"
#include "runtime/base/exit_code.h"

namespace trireme::coordinator {
namespace {

std::string Lines(const std::string& first, const std::string& more) {
  return first.empty() || more.empty() ? first + more : first + "\n" + more;
}

}  // namespace

void NameMemoryKills(const v1::Job& job, const std::map<std::string, v1::AttemptReport>& reports,
                     v1::AttemptReport& launcher) {
  if (!launcher.has_failure()) return;
  v1::Failure& failure = *launcher.mutable_failure();
  const bool killed = failure.exit_code() == base::kKilledCode || failure.rank() < 0;
  bool names = killed && ConsequencesOf(job.status()).attempt == v1::ATTEMPT_RUN;
  for (int i = 1; i < job.allocation_size(); ++i) {
    const auto report = reports.find(job.allocation(i).node());
    if (report == reports.end() || !report->second.has_failure()) continue;
    const v1::Failure& kill = report->second.failure();
    if (!names) {
      failure.set_evidence(Lines(failure.evidence(), kill.headline()));
      continue;
    }
    failure.set_evidence(Lines(failure.headline(), failure.evidence()));
    failure.set_headline(kill.headline());
    failure.set_next_action(kill.next_action());
    names = false;
  }
}

}  // namespace trireme::coordinator
