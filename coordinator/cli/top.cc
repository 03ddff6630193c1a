// `trireme top`: jobs and nodes as they are, redrawn on a terminal until q or Ctrl-C; one picture
// of them elsewhere.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <set>

#include "coordinator/cli/control.h"
#include "coordinator/cli/job_lookup.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/live_screen.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/text_table.h"
#include "coordinator/cli/top_view.h"
#include "coordinator/launcher/signal_latch.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/report/progress.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostSpecs = 20;  // asked for in one look
constexpr size_t kMostEnded = 5;
// A key is heard between two calls, so none may take long.
constexpr double kLongestCallSeconds = 2;

class TopReader {
 public:
  explicit TopReader(client::Client& client) : client_(client) {}

  // Brings the scene up to date; after an error it is as it was.
  absl::Status Look() {
    v1::ListRequest unended;
    for (int state = v1::JOB_PENDING; state <= v1::JobState_MAX; ++state) {
      if (!HasEnded(static_cast<v1::JobState>(state))) {
        unended.add_states(static_cast<v1::JobState>(state));
      }
    }
    ASSIGN_OR_RETURN(v1::ListResponse list, ListAll(client_, unended));
    ASSIGN_OR_RETURN(scene_.cluster, client_.Call(v1::GetClusterRequest()));
    RETURN_IF_ERROR(LookAfterEnded(list));
    scene_.jobs.assign(list.jobs().begin(), list.jobs().end());
    RETURN_IF_ERROR(LearnSteps());
    alive_.clear();
    for (const v1::Job& job : scene_.jobs) alive_.insert(job.id());
    scene_.jobs.insert(scene_.jobs.end(), ended_.begin(), ended_.end());
    scene_.now_unix_ns = NowUnixNs();
    return absl::OkStatus();
  }

  TopScene& scene() { return scene_; }

 private:
  // Jobs that were there at the last look stay for a while with how they ended.
  absl::Status LookAfterEnded(const v1::ListResponse& list) {
    std::set<uint64_t> gone = alive_;
    for (const v1::Job& job : list.jobs()) gone.erase(job.id());
    for (const uint64_t id : gone) {
      v1::GetRequest request;
      request.set_job_id(id);
      ASSIGN_OR_RETURN(v1::Job job, client_.Call(request));
      ended_.push_back(std::move(job));
      if (ended_.size() > kMostEnded) ended_.pop_front();
    }
    return absl::OkStatus();
  }

  // Lists come without specs.
  absl::Status LearnSteps() {
    size_t asked = 0;
    for (const v1::Job& job : scene_.jobs) {
      if (job.status().state() != v1::JOB_RUNNING || asked == kMostSpecs) continue;
      if (scene_.tokens_per_step.count(job.id()) != 0) continue;
      ++asked;
      v1::GetRequest request;
      request.set_job_id(job.id());
      ASSIGN_OR_RETURN(const v1::Job whole, client_.Call(request));
      scene_.tokens_per_step[job.id()] =
          static_cast<double>(whole.spec().training().global_batch_size()) *
          static_cast<double>(whole.spec().data().sequence_length());
    }
    return absl::OkStatus();
  }

  client::Client& client_;
  TopScene scene_;
  std::set<uint64_t> alive_;
  std::deque<v1::Job> ended_;
};

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

std::string AwayText(const absl::Status& status, Clock::time_point since) {
  const auto away = std::chrono::duration<double>(Clock::now() - since).count();
  return base::Text("the coordinator has been away for ", report::FormatDuration(away),
                    "; below is what it said last (", base::MessageOf(status), ")");
}

// Until q, Ctrl-C, or an error that does not pass.
absl::Status ShowLive(TopReader& reader, double delay_seconds) {
  const launcher::SignalLatch signals;
  LiveScreen screen;
  const report::ProgressStyle style = report::StyleOf(stdout);
  const std::chrono::milliseconds delay(static_cast<int64_t>(delay_seconds * 1000));
  Clock::time_point heard = Clock::now(), next_look = heard + delay;
  LiveScreen::Size drawn{0, 0};
  while (signals.count() == 0) {
    bool changed = false;
    if (Clock::now() >= next_look) {
      const absl::Status looked = reader.Look();
      if (!looked.ok() && !MayPass(looked)) return looked;
      if (looked.ok()) heard = Clock::now();
      reader.scene().notice = looked.ok() ? "" : AwayText(looked, heard);
      next_look = Clock::now() + delay;
      changed = true;
    }
    const LiveScreen::Size size = screen.size();
    if (changed || !(size == drawn)) {
      drawn = size;
      const TopShape shape{size.columns, size.lines, style.unicode, style.color};
      if (!screen.Draw(TopText(reader.scene(), shape))) return absl::OkStatus();
    }
    const char key = screen.Key(kLook);
    if (key == 'q' || key == 'Q') return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

int RunTop(const ControlOptions& given, const TopOptions& options) {
  const bool live = !given.json && !options.once && isatty(STDOUT_FILENO) == 1;
  ControlOptions control = given;
  if (live) control.timeout_seconds = std::min(control.timeout_seconds, kLongestCallSeconds);
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  TopReader reader(**client);
  if (const absl::Status looked = reader.Look(); !looked.ok()) return PrintCallError(looked);
  if (control.json) {
    v1::ListResponse list;
    list.mutable_jobs()->Assign(reader.scene().jobs.begin(), reader.scene().jobs.end());
    PrintJsonLine({{"cluster", &reader.scene().cluster}, {"list", &list}});
    return kOk;
  }
  if (live) {
    const absl::Status shown = ShowLive(reader, options.delay_seconds);
    return shown.ok() ? kOk : static_cast<int>(PrintCallError(shown));
  }
  const report::ProgressStyle style = report::StyleOf(stdout);
  const TopShape shape{TerminalWidth(), 0, style.unicode, style.color};
  std::printf("%s\n", TopText(reader.scene(), shape).c_str());
  return kOk;
}

}  // namespace trireme::cli
