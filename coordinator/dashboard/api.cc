#include "coordinator/dashboard/api.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "absl/strings/str_split.h"
#include "coordinator/dashboard/curve.h"
#include "coordinator/dashboard/job_order.h"
#include "coordinator/dashboard/run_file.h"
#include "coordinator/dashboard/timeline.h"
#include "coordinator/planning/job_planning.h"
#include "coordinator/run_files/job_log.h"
#include "coordinator/run_files/run_files.h"
#include "coordinator/run_files/run_owner.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/planner.h"
#include "runtime/report/message_json.h"
#include "trireme/v1/dashboard.pb.h"

namespace trireme::dashboard {
namespace {

using coordinator::Caller;
using coordinator::HttpRequest;
using coordinator::JobStore;
using coordinator::JobTable;
using coordinator::Role;

constexpr uint32_t kMostRows = 500;
constexpr size_t kMostEvents = 500;  // of an answer
constexpr uint64_t kRecent = 2000;   // events that are looked through for the newest
constexpr size_t kMostLogBytes = 64 << 10;
constexpr int64_t kMostPlanBytes = 16 << 20;
constexpr uint32_t kMostRanksPlanned = 4096;  // for a job that has not been launched
constexpr double kCancelGraceSeconds = 30;

// `name` of the query; `otherwise` where it is absent.
template <typename T>
absl::StatusOr<T> NumberOf(const HttpRequest& call, const std::string& name, T otherwise) {
  const std::string text = call.Query(name);
  if (text.empty()) return otherwise;
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return absl::InvalidArgumentError(fmt::format("{}: expected a whole number", name));
}

absl::StatusOr<v1::JobState> StateOf(const std::string& word) {
  for (int state = v1::JOB_PENDING; state <= v1::JobState_MAX; ++state) {
    const auto one = static_cast<v1::JobState>(state);
    if (coordinator::StateWord(one) == word) return one;
  }
  return absl::InvalidArgumentError("state: expected words such as running or failed");
}

// The list as this caller may see it.
v1::ListRequest ListFor(const Caller& who) {
  v1::ListRequest request;
  if (who.role != Role::kAdmin) request.set_owner(who.user);
  return request;
}

std::string EventsText(const std::vector<v1::Event>& events, uint64_t last, bool more) {
  v1::EventsView view;
  view.mutable_events()->Add(events.begin(), events.end());
  view.set_last(last);
  view.set_more(more);
  return report::MessageJson(view);
}

v1::JobView ViewOf(v1::Job job, std::vector<std::string> stalled) {
  v1::JobView view;
  job.clear_spec();
  *view.mutable_job() = std::move(job);
  view.mutable_stalled()->Assign(stalled.begin(), stalled.end());
  return view;
}

// Cut where no character is.
void EndWholeCharacter(std::string& text) {
  size_t begin = text.size();
  for (int back = 0; begin > 0 && back < 4; ++back) {
    const auto byte = static_cast<unsigned char>(text[--begin]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    if (begin + length > text.size() && begin > 0) text.resize(begin);
    return;
  }
}

// `json` with what is there of a log; `offset` below 0: so many bytes before its end.
Json LogJson(const std::string& path, Json json, int64_t offset) {
  json.update({{"offset", 0}, {"next", 0}, {"size", 0}, {"text", ""}});
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return json;
  const RunFile file(fd);
  if (offset < 0) offset = std::max<int64_t>(0, file.size() + offset);
  const int64_t wanted_offset = offset;
  // What is no file has no bytes.
  std::string text = coordinator::ReadLog(fd, offset, kMostLogBytes).value_or("");
  EndWholeCharacter(text);
  json["offset"] = offset;
  json["next"] = offset + static_cast<int64_t>(text.size());
  json["size"] = file.size();
  if (offset > wanted_offset) {
    text = fmt::format("\n--- {} bytes of the log are no longer kept ---\n{}",
                       offset - wanted_offset, text);
  }
  json["text"] = std::move(text);
  return json;
}

}  // namespace

Api::Answer Api::Cluster(const Call&, const Who& who) const {
  v1::ListRequest request = ListFor(who);
  request.set_page_size(1000);
  for (const v1::JobState state : {v1::JOB_PLANNING, v1::JOB_LAUNCHING, v1::JOB_RUNNING,
                                   v1::JOB_RECOVERING, v1::JOB_PAUSING}) {
    request.add_states(state);
  }
  ASSIGN_OR_RETURN(v1::ListResponse live, table_.List(request));
  v1::ClusterView view;
  *view.mutable_cluster() = table_.cluster();
  view.mutable_live()->Swap(live.mutable_jobs());
  view.set_user(who.user);
  view.set_role(std::string(WordOf(who.role)));
  view.set_now_unix_ns(coordinator::NowUnixNs());
  return report::MessageJson(view);
}

Api::Answer Api::Jobs(const Call& call, const Who& who) const {
  v1::ListRequest request = ListFor(who);
  ASSIGN_OR_RETURN(const uint32_t size, NumberOf<uint32_t>(call, "size", 100));
  for (const auto word : absl::StrSplit(call.Query("state"), ',', absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(const v1::JobState state, StateOf(std::string(word)));
    if (request.states_size() < v1::JobState_MAX) request.add_states(state);
  }
  const auto read = [request, token = call.Query("page"),
                     rows = std::clamp<uint32_t>(size, 1, kMostRows)](const JobTable& table,
                                                                      JobStore* store) {
    return OrderedJobs(table, store, request, token, rows);
  };
  ASSIGN_OR_RETURN(const JobPage list, rooms_.reads.Wait(who.user, kDiskTime, read));
  const std::vector<StallBoard::Texts> stalled = stalls_.Of(list.jobs);
  v1::JobsView view;
  for (size_t i = 0; i < list.jobs.size(); ++i) {
    v1::JobView& row = *view.add_jobs() = ViewOf(list.jobs[i], stalled[i]);
    v1::JobStatus& status = *row.mutable_job()->mutable_status();
    if (status.has_failure()) status.mutable_failure()->clear_evidence();
  }
  view.set_next_page(list.next);
  return report::MessageJson(view);
}

Api::Answer Api::Events(const Call& call, const Who& who) const {
  const uint64_t last = table_.last_sequence();
  const uint64_t recent = last > kRecent ? last - kRecent : 0;
  ASSIGN_OR_RETURN(const uint64_t asked, NumberOf<uint64_t>(call, "after", recent));
  // Who was away for long is not told all that he has missed.
  const uint64_t after = std::clamp(asked, recent, last);
  return rooms_.reads.Wait(
      who.user, kDiskTime, [after, who](const JobTable& table, JobStore* store) -> Answer {
        std::vector<v1::Event> seen;
        uint64_t newest = after;
        const auto found = table.EventsAfter(after, kRecent);
        for (const v1::Event& event : found.value_or(std::vector<v1::Event>())) {
          newest = event.sequence();
          if (event.job_id() != 0 && who.role != Role::kAdmin) {
            ASSIGN_OR_RETURN(const std::string owner, table.OwnerOf(event.job_id(), store));
            if (!coordinator::MayTouch(who, owner).ok()) continue;
          }
          seen.push_back(event);
        }
        if (seen.size() > kMostEvents) {
          seen.erase(seen.begin(), seen.end() - static_cast<std::ptrdiff_t>(kMostEvents));
        }
        return EventsText(seen, newest, false);
      });
}

absl::StatusOr<v1::Job> Api::Find(const Call& call, const Who& who) const {
  const auto found = call.path_values.find("id");
  const std::string text = found == call.path_values.end() ? "" : found->second;
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole) return absl::NotFoundError("there is no such job");
  auto job = rooms_.reads.Wait(who.user, kDiskTime, [id](const JobTable& table, JobStore* store) {
    return table.Get(id, store);
  });
  if (absl::IsNotFound(job.status())) return absl::NotFoundError("there is no such job");
  RETURN_IF_ERROR(job.status());
  RETURN_IF_ERROR(coordinator::MayTouch(who, job->owner()));
  return job;
}

Api::Answer Api::Job(const Call& call, const Who& who) {
  ASSIGN_OR_RETURN(const v1::Job job, Find(call, who));
  const auto found = call.path_values.find("part");
  const std::string part = found == call.path_values.end() ? "" : found->second;
  if (part.empty()) return report::MessageJson(ViewOf(job, StalledOf(job)));
  if (part == "curve") return Curve(job, call);
  if (part == "plan") return Plan(job);
  if (part == "timeline") return Timeline(job);
  if (part == "events") return JobEvents(job, call);
  if (part == "log") return Log(job, call);
  return absl::NotFoundError("a job has no such part");
}

Api::Answer Api::FromDisk(const v1::Job& job, std::function<Answer()> read) const {
  return rooms_.disks.Wait({job.run_folder(), job.owner(), kDiskTime},
                           [job, store = rooms_.store, read = std::move(read)]() -> Answer {
                             RETURN_IF_ERROR(coordinator::CheckRunOwner(job, store));
                             return read();
                           });
}

Api::Answer Api::Curve(const v1::Job& job, const Call& call) const {
  CurveRequest request;
  request.file = call.Query("file");
  ASSIGN_OR_RETURN(request.offset, NumberOf<int64_t>(call, "offset", 0));
  return FromDisk(job, [job, request]() -> Answer {
    const auto fd = coordinator::OpenRunFile(job.run_folder(), "metrics.jsonl");
    if (absl::IsNotFound(fd.status())) return JsonText(EmptyCurveJson());
    RETURN_IF_ERROR(fd.status());
    return JsonText(CurveJson(RunFile(*fd), fmt::format("{}", job.status().attempt()), request));
  });
}

// In the call's own thread, and one job at a time: the other threads stay free.
absl::StatusOr<v1::Plan> Api::PlanAhead(const v1::Job& job) {
  const uint32_t ranks = job.resources().ranks();
  if (ranks > kMostRanksPlanned) return absl::NotFoundError("drawn when the job is launched");
  const std::unique_lock lock(planning_, std::try_to_lock);
  if (!lock.owns_lock()) return absl::UnavailableError("another job is being planned");
  return plan::MakePlan(coordinator::CurrentSpec(job), static_cast<int>(ranks));
}

Api::Answer Api::Plan(const v1::Job& job) {
  const uint32_t attempt = job.status().attempt();
  if (const auto known = plans_.Find(job.id(), attempt)) return *known;
  if (attempt == 0) {
    ASSIGN_OR_RETURN(const v1::Plan plan, PlanAhead(job));
    return *plans_.Put(job.id(), attempt, JsonText(PlanJson(plan)));
  }
  ASSIGN_OR_RETURN(std::string text, FromDisk(job, [job]() -> Answer {
                     ASSIGN_OR_RETURN(const int fd,
                                      coordinator::OpenRunFile(job.run_folder(), "plan.pb"));
                     const RunFile file(fd);
                     const auto size = static_cast<size_t>(std::min(file.size(), kMostPlanBytes));
                     ASSIGN_OR_RETURN(const v1::Plan plan, ReadPlan(file.Read(0, size)));
                     return JsonText(PlanJson(plan));
                   }));
  return *plans_.Put(job.id(), attempt, std::move(text));
}

Api::Answer Api::Timeline(const v1::Job& job) const {
  return FromDisk(job, [job]() -> Answer {
    const auto read = [&](const std::string& name, size_t most_bytes) -> std::string {
      const auto fd = coordinator::OpenRunFile(job.run_folder(), name);
      return fd.ok() ? RunFile(*fd).Read(0, most_bytes) : "";
    };
    const auto ranks = static_cast<int>(job.resources().ranks());
    return JsonText(TimelineJson(ReadTimelines(ranks, read), ranks));
  });
}

Api::Answer Api::JobEvents(const v1::Job& job, const Call& call) const {
  coordinator::EventQuery query;
  query.job_id = job.id();
  query.limit = kMostEvents;
  ASSIGN_OR_RETURN(query.after_sequence, NumberOf<uint64_t>(call, "after", 0));
  return rooms_.reads.Wait(
      job.owner(), kDiskTime, [query](const JobTable&, JobStore* store) -> Answer {
        if (store == nullptr) return coordinator::AskTheStore();
        const auto events = store->Events(query);
        RETURN_IF_ERROR(coordinator::OfStore(events.status(), "events cannot be read"));
        const uint64_t last = events->empty() ? query.after_sequence : events->back().sequence();
        return EventsText(*events, last, events->size() == query.limit);
      });
}

Api::Answer Api::Log(const v1::Job& job, const Call& call) const {
  ASSIGN_OR_RETURN(const int rank, NumberOf<int>(call, "rank", 0));
  ASSIGN_OR_RETURN(const uint32_t asked, NumberOf<uint32_t>(call, "attempt", 0));
  ASSIGN_OR_RETURN(const int64_t offset, NumberOf<int64_t>(call, "offset", 0));
  const uint32_t attempt = asked == 0 ? job.status().attempt() : asked;
  v1::LogsRequest wanted;
  wanted.set_attempt(attempt);
  wanted.set_rank(rank);
  RETURN_IF_ERROR(coordinator::CheckLog(job, wanted));
  return FromDisk(job, [job, attempt, rank, offset] {
    return JsonText(LogJson(coordinator::LogPath(job.run_folder(), attempt, rank),
                            {{"attempt", attempt}, {"rank", rank}}, offset));
  });
}

Api::Answer Api::Ask(const Call& call, const Who& who) const {
  ASSIGN_OR_RETURN(const v1::Job job, Find(call, who));
  const auto found = call.path_values.find("action");
  const std::string action = found == call.path_values.end() ? "" : found->second;
  coordinator::JobEvent request;
  if (action == "pause") {
    request = coordinator::PauseAsked{who.user};
  } else if (action == "resume") {
    request = coordinator::ResumeAsked{who.user};
  } else if (action == "cancel") {
    request = coordinator::CancelAsked{who.user};
  } else {
    return absl::NotFoundError("expected pause, resume or cancel");
  }
  ASSIGN_OR_RETURN(const v1::Job after, rooms_.ask(who.user, job.id(), request,
                                                   action == "cancel" ? kCancelGraceSeconds : 0));
  return report::MessageJson(ViewOf(after, StalledOf(after)));
}

}  // namespace trireme::dashboard
