#include "coordinator/cli/job_text.h"

#include <fmt/format.h>
#include <time.h>

#include <chrono>
#include <vector>

#include "coordinator/cli/print_error.h"
#include "coordinator/cli/suggestion.h"
#include "coordinator/job_machine/reasons.h"
#include "runtime/base/text.h"
#include "runtime/report/plan_view.h"
#include "runtime/report/progress.h"

namespace trireme::cli {
namespace {

constexpr double kNsPerSecond = 1e9;

// "JOB_RUNNING" to "running".
std::string Word(const std::string& name, size_t prefix) {
  std::string word = name.substr(std::min(prefix, name.size()));
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

std::string DesiredStateText(const v1::JobDesiredStateChanged& change) {
  const std::string by = change.by().empty() ? "" : " by " + change.by();
  switch (change.desired_state()) {
    case v1::JOB_DESIRED_PAUSE:
      return "pause asked" + by;
    case v1::JOB_DESIRED_CANCEL:
      return "cancel asked" + by;
    default:
      return "resume asked" + by;
  }
}

std::string StateText(const v1::JobStateChanged& change) {
  std::string text = StateWord(change.to());
  const std::string& headline = change.failure().headline();
  if (!change.reason().empty()) text += ": " + Uncut(change.reason(), headline);
  if (!Tells(change.reason(), headline)) {
    text += (change.reason().empty() ? ": " : "; ") + headline;
  }
  return text;
}

std::string NodeText(const v1::NodeChanged& change) {
  std::string text = "node " + change.node() + ": " + Word(v1::NodeState_Name(change.state()), 5);
  if (change.gone()) text += ", gone";
  if (change.drained()) text += ", drained";
  if (!change.by().empty()) text += " by " + change.by();
  if (!change.reason().empty()) text += " (" + change.reason() + ")";
  return text;
}

}  // namespace

int64_t NowUnixNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string LocalTime(int64_t unix_ns) {
  if (unix_ns == 0) return "-";
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

std::string Ago(int64_t unix_ns, int64_t now_unix_ns) {
  if (unix_ns == 0) return "-";
  // Clocks of two machines may differ by a little.
  const int64_t ns = std::max<int64_t>(0, now_unix_ns - unix_ns);
  return report::FormatDuration(static_cast<double>(ns) / kNsPerSecond);
}

std::string StateWord(v1::JobState state) {
  const std::string& name = v1::JobState_Name(state);
  return name.empty() ? base::Text("state ", static_cast<int>(state)) : Word(name, 4);
}

absl::StatusOr<v1::JobState> ParseState(const std::string& word) {
  std::vector<std::string> words;
  for (int state = v1::JOB_PENDING; state <= v1::JobState_MAX; ++state) {
    words.push_back(StateWord(static_cast<v1::JobState>(state)));
    if (words.back() == word) return static_cast<v1::JobState>(state);
  }
  std::string message = "--state " + word + ": unknown";
  const std::string nearest = Nearest(word, words);
  if (!nearest.empty()) message += ", did you mean " + nearest + "?";
  message += nearest.empty() ? "; expected" : " Expected";
  for (const std::string& one : words) message += (one == words[0] ? " one of " : ", ") + one;
  return absl::InvalidArgumentError(message);
}

bool HasEnded(v1::JobState state) {
  return state == v1::JOB_COMPLETED || state == v1::JOB_FAILED || state == v1::JOB_CANCELLED;
}

std::string LeftText(const v1::Job& job, v1::JobState state) {
  switch (state) {
    case v1::JOB_PENDING:
      return NameOf(job) + " stays in the queue";
    case v1::JOB_PAUSED:
      return NameOf(job) + " stays paused";
    default:
      return NameOf(job) + " runs on without you";
  }
}

int ExitCodeOfState(v1::JobState state) {
  switch (state) {
    case v1::JOB_FAILED:
      return kJobFailed;
    case v1::JOB_CANCELLED:
      return kCancelled;
    case v1::JOB_PAUSED:
      return kCheckpointed;
    default:
      return kOk;
  }
}

std::string Painted(const std::string& text, v1::JobState state, bool color) {
  if (!color) return text;
  const char* code = "0";
  switch (state) {
    case v1::JOB_RUNNING:
      code = "36";
      break;
    case v1::JOB_COMPLETED:
      code = "32";
      break;
    case v1::JOB_FAILED:
      code = "31";
      break;
    case v1::JOB_RECOVERING:
    case v1::JOB_PAUSING:
    case v1::JOB_PAUSED:
    case v1::JOB_CANCELLED:
      code = "33";
      break;
    default:
      break;
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

Cell StateCell(v1::JobState state, bool color) {
  const std::string paint = Painted("|", state, color);
  const size_t bar = paint.find('|');
  return {StateWord(state), paint.substr(0, bar), paint.substr(bar + 1)};
}

std::string NameOf(const v1::Job& job) {
  return job.name().empty() ? base::Text("job ", job.id())
                            : base::Text("job ", job.id(), " (", job.name(), ")");
}

std::string AllocationText(
    const google::protobuf::RepeatedPtrField<v1::NodeAllocation>& allocation) {
  std::string text;
  for (const v1::NodeAllocation& part : allocation) {
    text += base::Text(text.empty() ? "" : ", ", part.node(), " x", part.ranks());
  }
  return text;
}

std::string ProgressText(const v1::Progress& progress) {
  std::string text = fmt::format("step {}/{}", progress.steps_done(), progress.steps_total());
  if (progress.steps_done() > 0 && progress.tokens_per_second() > 0) {
    text += fmt::format(", loss {:.4f}", progress.loss());
    text += fmt::format(", {} tokens/s", report::FormatRate(progress.tokens_per_second()));
    if (progress.overall_tokens_per_second() > 0) {
      text += fmt::format(" in steps, {} overall",
                          report::FormatRate(progress.overall_tokens_per_second()));
    }
  }
  if (progress.validation_step() > 0) {
    text += fmt::format(", validation loss {:.4f} (step {})", progress.validation_loss(),
                        progress.validation_step());
  }
  return text;
}

std::string StepsOf(const v1::Job& job) {
  if (job.progress().steps_total() == 0) {
    const uint64_t step = job.status().checkpoint_step();
    return step == 0 ? "-" : base::Text(step);
  }
  return base::Text(job.progress().steps_done(), "/", job.progress().steps_total());
}

std::string NoteOf(const v1::Job& job) {
  if (job.status().state() == v1::JOB_PENDING && !job.waits_for().empty()) {
    return base::Text("#", job.queue_position(), ": ", job.waits_for());
  }
  const bool placed =
      job.status().state() == v1::JOB_LAUNCHING || job.status().state() == v1::JOB_RUNNING;
  if (placed && !job.waits_for().empty()) return job.waits_for();
  // Its saves fail: of an attempt of which there is no more to say the nodes say more.
  if (job.status().state() == v1::JOB_RUNNING &&
      coordinator::TellsOfFailedSaves(job.status().reason())) {
    return job.status().reason();
  }
  if (job.status().state() == v1::JOB_RUNNING && job.allocation_size() > 0) {
    return "on " + AllocationText(job.allocation());
  }
  if (job.status().state() == v1::JOB_FAILED && !job.status().failure().headline().empty()) {
    return job.status().failure().headline();
  }
  return job.status().reason();
}

std::string WaitText(const v1::Job& job) {
  if (job.waits_for().empty() || job.queue_position() == 0) return job.waits_for();
  return base::Text("number ", job.queue_position(), " in the queue: ", job.waits_for());
}

recorder::Progress ToProgress(const v1::Progress& progress) {
  return {.steps_done = progress.steps_done(),
          .steps_total = progress.steps_total(),
          .loss = progress.loss(),
          .tokens_per_second = progress.tokens_per_second(),
          .utilisation = progress.utilisation(),
          .validation_loss = progress.validation_loss(),
          .validation_step = progress.validation_step(),
          .overall_tokens_per_second = progress.overall_tokens_per_second(),
          .memory_step = progress.memory_step()};
}

std::string RequestText(const v1::ResourceRequest& resources) {
  std::string text = base::Counted(resources.ranks(), "rank");
  if (resources.cpus_per_rank() > 0) {
    text += base::Text(", each with ", base::Counted(resources.cpus_per_rank(), "CPU"));
  }
  if (resources.gpus_per_rank() > 0) {
    text += ", " + base::Counted(resources.gpus_per_rank(), "GPU");
  }
  if (resources.memory_bytes_per_rank() > 0) {
    text += ", " + report::ReadableBytes(resources.memory_bytes_per_rank());
  }
  for (const std::string& node : resources.nodes()) {
    text += (node == resources.nodes(0) ? "; only on " : ", ") + node;
  }
  return text;
}

// Enough to know a headline by, wherever it was cut.
std::string BeginOf(const std::string& headline) { return headline.substr(0, 40); }

bool Tells(const std::string& reason, const std::string& headline) {
  return reason.find(BeginOf(headline)) != std::string::npos;
}

std::string Uncut(const std::string& reason, const std::string& headline) {
  const size_t at = headline.empty() ? std::string::npos : reason.find(BeginOf(headline));
  const bool cut = reason.size() > 3 && reason.compare(reason.size() - 3, 3, "...") == 0;
  if (at == std::string::npos || !cut) return reason;
  const std::string told = reason.substr(at, reason.size() - 3 - at);
  return headline.rfind(told, 0) == 0 ? reason.substr(0, at) + headline : reason;
}

std::string EventText(const v1::Event& event) {
  switch (event.what_case()) {
    case v1::Event::kSubmitted:
      return "submitted" +
             (event.submitted().owner().empty() ? "" : " by " + event.submitted().owner());
    case v1::Event::kStateChanged:
      return StateText(event.state_changed());
    case v1::Event::kDesiredStateChanged:
      return DesiredStateText(event.desired_state_changed());
    case v1::Event::kPlaced:
      return event.placed().allocation().empty()
                 ? std::string("gave its allocation back")
                 : "placed on " + AllocationText(event.placed().allocation());
    case v1::Event::kCheckpointed:
      return base::Text("checkpoint of step ", event.checkpointed().step());
    case v1::Event::kWentOnInMemory:
      return base::Text("goes on in memory at step ", event.went_on_in_memory().step());
    case v1::Event::kMemoryStepLeft:
      return base::Text("step ", event.memory_step_left().step(),
                        event.memory_step_left().over()
                            ? " is passed: any step in memory is used again"
                            : " in memory failed twice, it is not used again");
    case v1::Event::kStalled:
      return (event.stalled().over() ? "moves again: " : "stalled: ") + event.stalled().text();
    case v1::Event::kNodeChanged:
      return NodeText(event.node_changed());
    default:
      return "an event that this version does not know";
  }
}

std::string Shown(const std::string& text) {
  std::string shown = text;
  for (char& c : shown) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < ' ' && c != '\n' && c != '\t') || byte == 127) c = '?';
  }
  return shown;
}

}  // namespace trireme::cli
