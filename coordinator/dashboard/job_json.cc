#include "coordinator/dashboard/job_json.h"

#include <fmt/format.h>

#include <string>

#include "coordinator/job_machine/job_machine.h"

namespace trireme::dashboard {
namespace {

using coordinator::StateWord;

const char* DesiredStateWord(v1::JobDesiredState desired_state) {
  switch (desired_state) {
    case v1::JOB_DESIRED_PAUSE:
      return "pause";
    case v1::JOB_DESIRED_CANCEL:
      return "cancel";
    default:
      return "run";
  }
}

Json AllocationJson(const google::protobuf::RepeatedPtrField<v1::NodeAllocation>& allocation) {
  Json list = Json::array();
  for (const v1::NodeAllocation& part : allocation) {
    list.push_back({{"node", part.node()}, {"ranks", part.ranks()}});
  }
  return list;
}

std::string AllocationText(
    const google::protobuf::RepeatedPtrField<v1::NodeAllocation>& allocation) {
  std::string text;
  for (const v1::NodeAllocation& part : allocation) {
    text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", part.node(), part.ranks());
  }
  return text;
}

Json ProgressJson(const v1::Progress& progress) {
  return {{"step", progress.steps_done()},
          {"steps", progress.steps_total()},
          {"loss", progress.loss()},
          {"tokens_per_second", progress.tokens_per_second()},
          {"overall_tokens_per_second", progress.overall_tokens_per_second()},
          {"utilisation", progress.utilisation()},
          {"validation_loss", progress.validation_loss()},
          {"validation_step", progress.validation_step()}};
}

Json FailureJson(const v1::Failure& failure) {
  return {{"rank", failure.rank()},
          {"exit_code", failure.exit_code()},
          {"headline", failure.headline()},
          {"evidence", failure.evidence()},
          {"next_action", failure.next_action()}};
}

struct Told {
  std::string kind;
  std::string level;
  std::string text;
};

std::string LevelOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_FAILED:
      return "bad";
    case v1::JOB_RECOVERING:
      return "warn";
    case v1::JOB_COMPLETED:
    case v1::JOB_RUNNING:
      return "good";
    default:
      return "info";
  }
}

Told TellState(const v1::JobStateChanged& change) {
  Told told{StateWord(change.to()), LevelOf(change.to()), change.reason()};
  // "cancelled: cancelled by ada" says it twice.
  if (told.text.starts_with(told.kind + " ")) told.text.erase(0, told.kind.size() + 1);
  const std::string& headline = change.failure().headline();
  // The reason often ends in the headline, which may be cut there.
  constexpr size_t kEnoughToKnow = 40;
  const std::string known = headline.substr(0, kEnoughToKnow);
  if (!headline.empty() && told.text.find(known) == std::string::npos) {
    told.text += (told.text.empty() ? "" : "; ") + headline;
  }
  return told;
}

Told TextOfDesiredState(const v1::JobDesiredStateChanged& change) {
  const std::string what = change.desired_state() == v1::JOB_DESIRED_RUN
                               ? "resume"
                               : DesiredStateWord(change.desired_state());
  return {"asked", "info", what + (change.by().empty() ? "" : ", by " + change.by())};
}

Told TellNode(const v1::NodeChanged& change) {
  const bool lost = change.state() == v1::NODE_LOST;
  std::string text = change.node() + " is ";
  text += change.gone() ? "gone for good" : lost ? "lost" : "ready";
  if (change.drained() && !change.gone()) text += ", drained";
  if (!change.reason().empty()) text += ": " + change.reason();
  return {"node", lost ? "bad" : change.drained() ? "warn" : "good", text};
}

Told Tell(const v1::Event& event) {
  switch (event.what_case()) {
    case v1::Event::kSubmitted:
      return {"submitted", "info", "by " + event.submitted().owner()};
    case v1::Event::kStateChanged:
      return TellState(event.state_changed());
    case v1::Event::kDesiredStateChanged:
      return TextOfDesiredState(event.desired_state_changed());
    case v1::Event::kPlaced:
      return {"placed", "info",
              event.placed().allocation().empty()
                  ? "gave its allocation back"
                  : "on " + AllocationText(event.placed().allocation())};
    case v1::Event::kCheckpointed:
      return {"checkpoint", "info", fmt::format("of step {}", event.checkpointed().step())};
    case v1::Event::kStalled:
      return {event.stalled().over() ? "moves again" : "stalled",
              event.stalled().over() ? "good" : "bad", event.stalled().text()};
    case v1::Event::kNodeChanged:
      return TellNode(event.node_changed());
    default:
      return {"event", "info", "of a kind that this version does not know"};
  }
}

Json NodeJson(const v1::Node& node) {
  return {{"name", node.name()},
          {"state", node.gone()                     ? "gone"
                    : node.state() == v1::NODE_LOST ? "lost"
                                                    : "ready"},
          {"drained", node.drained()},
          {"reason", node.reason()},
          {"cpus", node.cpus()},
          {"cpus_used", node.cpus_used()},
          {"memory_bytes", node.memory_bytes()},
          {"memory_bytes_used", node.memory_bytes_used()},
          {"gpus", node.gpus()},
          {"gpus_used", node.gpus_used()},
          {"heard_ms", Milliseconds(node.last_heard_unix_ns())},
          {"jobs", Json::array()}};
}

}  // namespace

Json JobRow(const v1::Job& job, const std::vector<std::string>& stalled) {
  const v1::JobStatus& status = job.status();
  Json row = {{"id", job.id()},
              {"name", job.name()},
              {"owner", job.owner()},
              {"state", StateWord(status.state())},
              {"desired_state", DesiredStateWord(status.desired_state())},
              {"reason", status.reason()},
              {"headline", status.failure().headline()},
              {"attempt", status.attempt()},
              {"failures", status.failures()},
              {"checkpoint_step", status.checkpoint_step()},
              {"retry_at_ms", Milliseconds(status.retry_at_unix_ns())},
              {"submitted_ms", Milliseconds(job.submitted_unix_ns())},
              {"changed_ms", Milliseconds(status.changed_unix_ns())},
              {"priority", job.priority()},
              {"ranks", job.resources().ranks()},
              {"queue_position", job.queue_position()},
              {"waits_for", job.waits_for()},
              {"stalled", stalled}};
  row["progress"] = job.has_progress() ? ProgressJson(job.progress()) : Json(nullptr);
  return row;
}

Json JobDetails(const v1::Job& job, const std::vector<std::string>& stalled) {
  Json details = JobRow(job, stalled);
  const v1::ResourceRequest& resources = job.resources();
  details["exit_code"] = job.status().exit_code();
  details["run_folder"] = job.run_folder();
  details["allocation"] = AllocationJson(job.allocation());
  details["cpus_per_rank"] = resources.cpus_per_rank();
  details["gpus_per_rank"] = resources.gpus_per_rank();
  details["memory_bytes_per_rank"] = resources.memory_bytes_per_rank();
  details["failure"] =
      job.status().has_failure() ? FailureJson(job.status().failure()) : Json(nullptr);
  return details;
}

Json EventJson(const v1::Event& event) {
  const Told told = Tell(event);
  Json json = {{"sequence", event.sequence()},
               {"ms", Milliseconds(event.time_unix_ns())},
               {"job", event.job_id()},
               {"attempt", event.attempt()},
               {"kind", told.kind},
               {"level", told.level},
               {"text", told.text}};
  if (event.has_submitted()) json["name"] = event.submitted().name();
  if (event.has_placed()) json["allocation"] = AllocationJson(event.placed().allocation());
  return json;
}

Json ClusterJson(const v1::Cluster& cluster, const std::vector<v1::Job>& live) {
  Json nodes = Json::array();
  for (const v1::Node& node : cluster.nodes()) {
    Json one = NodeJson(node);
    for (const v1::Job& job : live) {
      for (const v1::NodeAllocation& part : job.allocation()) {
        if (part.node() != node.name()) continue;
        one["jobs"].push_back({{"id", job.id()},
                               {"name", job.name()},
                               {"state", StateWord(job.status().state())},
                               {"ranks", part.ranks()},
                               {"cpus", part.ranks() * job.resources().cpus_per_rank()}});
      }
    }
    nodes.push_back(std::move(one));
  }
  return {{"version", cluster.version()},
          {"started_ms", Milliseconds(cluster.started_unix_ns())},
          {"jobs_pending", cluster.jobs_pending()},
          {"jobs_running", cluster.jobs_running()},
          {"last_sequence", cluster.last_sequence()},
          {"nodes", std::move(nodes)}};
}

}  // namespace trireme::dashboard
