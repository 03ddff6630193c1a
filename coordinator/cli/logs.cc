// `trireme logs`: the bytes that a rank wrote; followed, from one attempt to the next.
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "coordinator/cli/away.h"
#include "coordinator/cli/control.h"
#include "coordinator/cli/job_lookup.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/launcher/signal_latch.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;
using client::Pull;

constexpr int kLooksPerQuestion = 10;

class LogReader {
 public:
  LogReader(client::Client& client, const v1::Job& job, const LogsOptions& options,
            const ControlOptions& control)
      : client_(client), job_(job), options_(options), control_(control) {}

  absl::StatusOr<int> Run() {
    uint32_t attempt = options_.attempt;
    if (attempt == 0) {
      ASSIGN_OR_RETURN(attempt, Await(/*after=*/0));
    }
    int64_t offset = -options_.tail_bytes.value_or(0);
    while (attempt != 0 && !left_) {
      RETURN_IF_ERROR(Copy(attempt, offset));
      offset = 0;
      if (!options_.follow || options_.attempt != 0) break;
      const uint32_t before = attempt;
      ASSIGN_OR_RETURN(attempt, Await(before));
      if (attempt != 0 && !json_) {
        std::fprintf(stderr, "--- attempt %u of %s ---\n", attempt, NameOf(job_).c_str());
      }
    }
    if (!left_) return kOk;
    if (!json_) std::fprintf(stderr, "%s\n", LeftText(job_, job_.status().state()).c_str());
    return kLeft;
  }

 private:
  // The newest attempt, if it is later than `after`; waits for one while following. 0: none comes.
  absl::StatusOr<uint32_t> Await(uint32_t after) {
    bool told = false;
    for (int look = 0; !left_; ++look) {
      if (look % kLooksPerQuestion == 0) {
        v1::GetRequest request;
        request.set_job_id(job_.id());
        const auto job = client_.Call(request);
        if (!job.ok()) {
          // The daemon may be on its way back.
          const bool wait = options_.follow && absl::IsUnavailable(job.status()) &&
                            Clock::now() - heard_ < control_.connection.reconnect_for;
          if (!wait) return job.status();
          Tell(/*away=*/true);
          Pause();
          continue;
        }
        job_ = *job;
        heard_ = Clock::now();
        Tell(/*away=*/false);
        const v1::JobStatus& status = job_.status();
        // One after the other, also where several have passed meanwhile.
        if (status.attempt() > after) return after == 0 ? status.attempt() : after + 1;
        if (after == 0 && HasEnded(status.state())) return NeverStarted();
        if (HasEnded(status.state()) || (after > 0 && !options_.follow)) return 0;
        if (!options_.follow) {
          return absl::FailedPreconditionError(
              base::Text(NameOf(job_), " is ", StateWord(status.state()),
                         " and has not been started yet, so there are no logs; -f waits for them"));
        }
        if (!told && !json_ && (after == 0 || status.state() == v1::JOB_PAUSED)) {
          std::fprintf(stderr, "%s is %s: waiting for its %s attempt\n", NameOf(job_).c_str(),
                       StateWord(status.state()).c_str(), after == 0 ? "first" : "next");
          told = true;
        }
      }
      Pause();
    }
    return 0;
  }

  // Whoever follows has what there is.
  absl::StatusOr<uint32_t> NeverStarted() const {
    const std::string why = base::Text(NameOf(job_), " was ", StateWord(job_.status().state()),
                                       " before it was started, so there are no logs");
    if (!options_.follow) return absl::FailedPreconditionError(why);
    if (!json_) std::fprintf(stderr, "%s\n", why.c_str());
    return 0;
  }

  void Pause() {
    usleep(static_cast<useconds_t>(kLook.count()) * 1000);
    left_ = signals_.count() > 0;
  }

  // Once each time that it goes, and comes back.
  void Tell(bool away) {
    if (away != away_) TellAway(control_, away);
    away_ = away;
  }

  absl::Status Copy(uint32_t attempt, int64_t offset) {
    v1::LogsRequest request;
    request.set_job_id(job_.id());
    request.set_attempt(attempt);
    request.set_rank(options_.launcher ? -1 : options_.rank);
    request.set_offset(offset);
    request.set_follow(options_.follow);
    const auto stream = client_.Logs(request);
    while (!left_) {
      v1::LogsResponse response;
      ASSIGN_OR_RETURN(const Pull pull, stream->Next(response, kLook));
      if (pull == Pull::kEnd) break;
      left_ = signals_.count() > 0;
      Tell(stream->interrupted());
      if (!stream->interrupted()) heard_ = Clock::now();
      if (pull == Pull::kNothing) continue;
      if (json_) {
        PrintJsonLine(response);
      } else {
        const auto at = static_cast<int64_t>(response.offset());
        if (offset >= 0 && at > offset) {
          std::fprintf(stderr, "--- %lld bytes of the log are no longer kept ---\n",
                       static_cast<long long>(at - offset));
        }
        offset = at + static_cast<int64_t>(response.data().size());
        std::fwrite(response.data().data(), 1, response.data().size(), stdout);
        std::fflush(stdout);
      }
    }
    return absl::OkStatus();
  }

  client::Client& client_;
  v1::Job job_;
  const LogsOptions options_;
  const ControlOptions& control_;
  const bool json_ = control_.json;
  const launcher::SignalLatch signals_;
  Clock::time_point heard_ = Clock::now();  // of the daemon
  bool away_ = false;                       // it has been told
  bool left_ = false;
};

}  // namespace

int RunLogs(const ControlOptions& control, const LogsOptions& options) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto job = FindJob(**client, options.job);
  if (!job.ok()) return PrintCallError(job.status());
  const auto code = LogReader(**client, *job, options, control).Run();
  if (!code.ok()) return PrintCallError(code.status());
  return *code;
}

}  // namespace trireme::cli
