#include "coordinator/cli/explanation.h"

#include "coordinator/cli/job_text.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/job_machine/memory_steps.h"
#include "runtime/base/text.h"
#include "runtime/report/stalled_ranks.h"

namespace trireme::cli {
namespace {

using base::Text;

// Texts of others may end their sentence themselves.
std::string Ended(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

// The failure of attempts that were followed by others is in the events alone.
std::string LastFailure(const std::vector<v1::Event>& events) {
  for (auto at = events.rbegin(); at != events.rend(); ++at) {
    const std::string& headline = at->state_changed().failure().headline();
    if (!headline.empty()) return Text("attempt ", at->attempt(), " failed: ", headline);
  }
  return "";
}

// A reason of the scheduler: "waits for 8 CPUs; ..." has no subject.
std::string Sentence(const std::string& reason) {
  return Ended((reason.rfind("waits", 0) == 0 ? "It " : "It waits: ") + reason);
}

// "has been running for 3m20s", "failed 3m20s ago".
std::string StateSince(const v1::JobStatus& status, int64_t now) {
  const std::string word = StateWord(status.state());
  if (status.changed_unix_ns() == 0) return "is " + word;
  const std::string time = Ago(status.changed_unix_ns(), now);
  if (status.state() == v1::JOB_CANCELLED) return Text("was ", word, " ", time, " ago");
  return HasEnded(status.state()) ? Text(word, " ", time, " ago")
                                  : Text("has been ", word, " for ", time);
}

bool BeginsWith(const std::string& text, const char* begin) { return text.rfind(begin, 0) == 0; }

// By how the scheduler begins its reasons (coordinator/scheduler/wait_reasons.cc): some waits do
// not end by themselves.
std::string NextOfPending(const v1::Job& job) {
  const std::string& reason = job.waits_for();
  if (BeginsWith(reason, "there are no nodes")) return "add a node: trireme-agent on a machine";
  if (BeginsWith(reason, "may use only")) {
    return Text("add that node, or trireme cancel ", job.id(),
                " and name others in resources.nodes (trireme nodes lists them)");
  }
  if (reason.find("--user-running-ranks") != std::string::npos) {
    return BeginsWith(reason, "asks for")
               ? Text("trireme cancel ", job.id(),
                      " and ask for fewer ranks, or have an admin raise the cap")
               : std::string("wait, or end one of your jobs that run (trireme list shows them)");
  }
  // What the plan takes, resources says nothing of.
  const bool planned = job.spec().resources().memory_mib_per_rank() == 0;
  if (BeginsWith(reason, "asks for") && planned && reason.find(" of memory") != std::string::npos) {
    return Text("add a node, or trireme cancel ", job.id(),
                " and ask for fewer ranks; where it is memory that nodes lack (trireme nodes shows "
                "what there is), make it smaller by what trireme plan JOB.yaml --fit SIZE names, "
                "SIZE being what a node has for a rank");
  }
  if (BeginsWith(reason, "asks for")) {
    return Text("add a node, or trireme cancel ", job.id(),
                " and ask for less in resources (trireme nodes shows what there is)");
  }
  if (BeginsWith(reason, "too few nodes are left")) {
    return "bring a node back (trireme nodes shows them; trireme undrain NODE), or add one";
  }
  if (reason.find("which could not start it") != std::string::npos) {
    return "wait for the others; or mend those nodes, and say so by trireme undrain NODE";
  }
  return "trireme nodes shows what is free, trireme list what runs there";
}

std::string GoesOnFrom(const v1::Job& job) {
  const uint64_t step = job.status().checkpoint_step();
  return step == 0 ? std::string("from the start, for there is no checkpoint yet")
                   : Text("from the checkpoint of step ", step);
}

void ExplainPending(const v1::Job& job, Explanation& why) {
  why.sentences.push_back(Text("It asks for ", RequestText(job.resources()), "."));
  why.sentences.push_back(job.waits_for().empty() ? std::string("It waits for resources.")
                                                  : Sentence(job.waits_for()));
  if (job.queue_position() > 0) {
    why.sentences.push_back(job.queue_position() == 1
                                ? std::string("It is the first in the queue.")
                                : Text("It is number ", job.queue_position(), " in the queue."));
  }
  why.next = NextOfPending(job);
}

void TellUnusedStep(const v1::JobStatus& status, Explanation& why) {
  const std::string unused = coordinator::UnusedStepText(status);
  if (!unused.empty()) why.sentences.push_back(Ended("Its " + unused));
}

void ExplainRunning(const v1::Job& job, const std::vector<v1::Event>& events, Explanation& why) {
  if (!job.waits_for().empty()) why.sentences.push_back(Sentence(job.waits_for()));
  // Reconciler::WaitOf
  if (BeginsWith(job.waits_for(), "waits for a report of the agent")) {
    why.next =
        "see whether that node is up and its trireme-agent runs; if it is gone for good, trireme "
        "drain NODE --gone --reason WHY";
  }
  // Ranks that have not taken their plan yet report no steps at all.
  if (job.progress().steps_total() > 0) {
    why.sentences.push_back("It is at " + ProgressText(job.progress()) + ".");
  }
  TellUnusedStep(job.status(), why);
  const auto stalled = report::StalledRanksOf(job, events);
  for (const std::string& text : stalled) why.sentences.push_back("It is stalled: " + text + ".");
  if (!stalled.empty()) {
    why.next =
        "look at the process named there (stopped, a debugger?) and its node; if it stays "
        "so, the attempt ends by itself and the next one goes on " +
        GoesOnFrom(job);
  } else if (const std::string failed = LastFailure(events); !failed.empty()) {
    why.sentences.push_back(Ended("An earlier " + failed));
  }
}

// mpirun waits without an end for a node whose ssh does not answer.
void ExplainLaunching(const v1::Job& job, int64_t now_unix_ns, Explanation& why) {
  constexpr int64_t kUsualNs = 120'000'000'000;
  if (!job.waits_for().empty() || !why.next.empty()) return;
  if (now_unix_ns - job.status().changed_unix_ns() < kUsualNs) return;
  why.sentences.push_back("Not all of its ranks have come up, which seldom takes so long.");
  why.next = Text("trireme logs ", job.id(), " --launcher shows what mpirun says");
  if (job.allocation_size() > 1) {
    why.next += Text("; on ", job.allocation(0).node(), ", ssh ", job.allocation(1).node(),
                     " true has to answer, without a question, and so for each other node");
  }
  why.next += Text("; trireme cancel ", job.id(), " ends it");
}

void TellFailures(const v1::JobStatus& status, Explanation& why) {
  if (status.failures() > 1) {
    why.sentences.push_back(Text(status.failures(), " attempts in a row have failed ",
                                 coordinator::WithoutProgress(status), "."));
  } else if (status.setbacks() > 1 && status.furthest_step() > 0) {
    why.sentences.push_back(Text(status.setbacks(),
                                 " attempts have failed and saved nothing beyond the one before, "
                                 "nor beyond step ",
                                 status.furthest_step(), "."));
  }
  TellUnusedStep(status, why);
}

void ExplainRecovering(const v1::Job& job, const std::vector<v1::Event>& events, int64_t now,
                       Explanation& why) {
  const v1::JobStatus& status = job.status();
  const std::string& headline = status.failure().headline();
  if (headline.empty() && status.reason().empty()) {
    if (const std::string failed = LastFailure(events); !failed.empty()) {
      why.sentences.push_back(Ended("Its " + failed));
    }
  } else if (!Tells(status.reason(), headline)) {
    why.sentences.push_back(Ended(Text("Its attempt ", status.attempt(), " failed: ", headline)));
  }
  if (status.attempt_live()) {
    why.sentences.push_back("What is left of that attempt is being ended first.");
  } else if (status.retry_at_unix_ns() > now) {
    why.sentences.push_back(Text("The next attempt starts in ", Ago(now, status.retry_at_unix_ns()),
                                 ", ", GoesOnFrom(job), "."));
  } else {
    why.sentences.push_back(Text("The next attempt goes on ", GoesOnFrom(job), "."));
  }
  TellFailures(status, why);
  why.next = status.failure().next_action();
}

void ExplainFailed(const v1::Job& job, Explanation& why) {
  const v1::JobStatus& status = job.status();
  const v1::Failure& failure = status.failure();
  if (!Tells(status.reason(), failure.headline())) {
    why.sentences.push_back(Ended("The last attempt failed: " + failure.headline()));
  }
  if (!failure.evidence().empty()) why.sentences.push_back(failure.evidence());
  TellFailures(status, why);
  if (status.checkpoint_step() > 0) {
    why.sentences.push_back(
        Text("Its last checkpoint is that of step ", status.checkpoint_step(), "."));
  }
  why.next = failure.next_action().empty()
                 ? Text("trireme logs ", job.id(),
                        failure.rank() >= 0 ? Text(" --rank ", failure.rank()) : " --launcher",
                        " shows what was written")
                 : failure.next_action();
}

}  // namespace

std::string FailureText(const v1::Failure& failure) {
  std::string text = failure.headline();
  if (!failure.evidence().empty()) text += (text.empty() ? "" : "\n") + failure.evidence();
  return text;
}

Explanation Explain(const v1::Job& job, const std::vector<v1::Event>& events, int64_t now) {
  const v1::JobStatus& status = job.status();
  Explanation why;
  const std::string reason = Uncut(status.reason(), status.failure().headline());
  why.sentences.push_back(
      Ended(Text(NameOf(job), " ", StateSince(status, now), reason.empty() ? "" : ": " + reason)));
  if (status.desired_state() == v1::JOB_DESIRED_CANCEL && !HasEnded(status.state())) {
    why.sentences.push_back("It is to be cancelled, and ends as soon as its ranks are gone.");
  }
  switch (status.state()) {
    case v1::JOB_PENDING:
      ExplainPending(job, why);
      break;
    case v1::JOB_LAUNCHING:
    case v1::JOB_RUNNING:
    case v1::JOB_PAUSING:
      if (job.allocation_size() > 0) {
        why.sentences.push_back(
            Text("Attempt ", status.attempt(), " is on ", AllocationText(job.allocation()), "."));
      }
      ExplainRunning(job, events, why);
      if (status.state() == v1::JOB_LAUNCHING) ExplainLaunching(job, now, why);
      break;
    case v1::JOB_RECOVERING:
      ExplainRecovering(job, events, now, why);
      break;
    case v1::JOB_PAUSED:
      why.sentences.push_back(Text("Once resumed it goes on ", GoesOnFrom(job), "."));
      why.next = Text("trireme resume ", job.id());
      break;
    case v1::JOB_FAILED:
      ExplainFailed(job, why);
      break;
    case v1::JOB_COMPLETED:
      if (!job.run_folder().empty()) {
        why.sentences.push_back("What it made is in " + job.run_folder() + ".");
      }
      break;
    default:
      break;
  }
  return why;
}

}  // namespace trireme::cli
