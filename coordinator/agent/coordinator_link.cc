// A session is one stream of gRPC's callback interface: one read and one write under way.
#include "coordinator/agent/coordinator_link.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/client/channel.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/status_macros.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::agent {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFirstDelay(200);
constexpr std::chrono::milliseconds kLongestDelay(5000);
constexpr std::chrono::milliseconds kReportInterval(1000);
// Each report is answered. Beyond what gRPC's own pings allow, whose timers wait by the time of
// day: set back by an hour, they take an hour more.
constexpr std::chrono::seconds kSilence(60);
constexpr size_t kMostSent = 1000;  // reports whose times are remembered

class Session : public grpc::ClientBidiReactor<v1::FromAgent, v1::ToAgent> {
 public:
  Session(const std::shared_ptr<grpc::Channel>& channel, const std::string& token,
          const v1::AgentHello& hello)
      : stub_(channel) {
    client::Identify(context_, token);
    *outgoing_.mutable_hello() = hello;
    writing_ = true;
    stub_.async()->Connect(&context_, this);
    StartWrite(&outgoing_);
    StartRead(&incoming_);
    StartCall();
  }
  ~Session() override {
    context_.TryCancel();
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_));
  }

  void Send(v1::NodeReport report) {
    const absl::MutexLock lock(&mutex_);
    report.set_number(++number_);
    sent_.push_back({number_, base::BoottimeNs()});
    if (sent_.size() > kMostSent) sent_.pop_front();
    next_ = std::move(report);
    Write();
  }
  int64_t TakenNs() const {
    const absl::MutexLock lock(&mutex_);
    return taken_ns_;
  }
  // A word of the coordinator, or the dial.
  Clock::time_point heard() const {
    const absl::MutexLock lock(&mutex_);
    return heard_;
  }
  bool welcomed() const {
    const absl::MutexLock lock(&mutex_);
    return welcome_.has_value() && !done_;
  }
  std::optional<absl::Status> ended() const {
    const absl::MutexLock lock(&mutex_);
    if (!done_) return std::nullopt;
    return status_;
  }
  v1::AgentWelcome welcome() const {
    const absl::MutexLock lock(&mutex_);
    return welcome_.value_or(v1::AgentWelcome());
  }
  std::optional<v1::DesiredAttempts> TakeDesired() {
    const absl::MutexLock lock(&mutex_);
    return std::exchange(desired_, std::nullopt);
  }
  std::optional<v1::Adopt> TakeAdopt() {
    const absl::MutexLock lock(&mutex_);
    return std::exchange(adopt_, std::nullopt);
  }
  std::chrono::milliseconds report_interval() const {
    const absl::MutexLock lock(&mutex_);
    if (!welcome_ || welcome_->report_seconds() <= 0) return kReportInterval;
    return std::chrono::milliseconds(static_cast<int64_t>(welcome_->report_seconds() * 1000));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      const absl::MutexLock lock(&mutex_);
      heard_ = Clock::now();
      if (incoming_.has_welcome()) welcome_ = incoming_.welcome();
      if (incoming_.has_desired()) desired_ = std::move(*incoming_.mutable_desired());
      if (incoming_.has_adopt()) adopt_ = incoming_.adopt();
      if (incoming_.has_taken()) Taken(incoming_.taken().number());
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    const absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (ok) Write();
  }
  void OnDone(const grpc::Status& status) override {
    const absl::MutexLock lock(&mutex_);
    status_ = status.ok() ? absl::UnavailableError("the coordinator has hung up")
                          : absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                         status.error_message());
    done_ = true;
  }

 private:
  void Taken(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (; !sent_.empty() && sent_.front().number <= number; sent_.pop_front()) {
      taken_ns_ = sent_.front().at_ns;
    }
  }
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || done_ || !next_) return;
    *outgoing_.mutable_report() = std::move(*next_);
    next_.reset();
    writing_ = true;
    StartWrite(&outgoing_);
  }

  v1::AgentLink::Stub stub_;
  grpc::ClientContext context_;
  v1::ToAgent incoming_;  // of the read under way
  mutable absl::Mutex mutex_;
  v1::FromAgent outgoing_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::NodeReport> next_ ABSL_GUARDED_BY(mutex_);
  struct Sent {
    uint64_t number;
    int64_t at_ns;
  };
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Sent> sent_ ABSL_GUARDED_BY(mutex_);  // and not yet taken
  int64_t taken_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<v1::AgentWelcome> welcome_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::DesiredAttempts> desired_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Adopt> adopt_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point heard_ ABSL_GUARDED_BY(mutex_) = Clock::now();
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

class GrpcLink : public CoordinatorLink {
 public:
  GrpcLink(client::Connection connection, v1::AgentHello hello)
      : connection_(std::move(connection)), hello_(std::move(hello)) {}

  bool Poll(Clock::time_point now) override {
    if (session_) {
      if (const auto ended = session_->ended()) {
        Failed(*ended, now);
      } else if (now - session_->heard() > kSilence) {
        Failed(absl::UnavailableError("the coordinator has said nothing for a minute"), now);
      } else if (session_->welcomed() && !greeted_) {
        greeted_ = true;
        delay_ = kFirstDelay;
        state_ = absl::OkStatus();
        return true;
      }
    }
    if (!session_ && now >= next_try_) {
      if (const auto channel = connection_.channel(); channel.ok()) {
        session_ = std::make_unique<Session>(*channel, connection_.token, hello_);
      } else {
        Failed(channel.status(), now);
      }
    }
    return false;
  }
  v1::AgentWelcome welcome() const override {
    return session_ ? session_->welcome() : v1::AgentWelcome();
  }
  std::optional<v1::DesiredAttempts> TakeDesired() override {
    return greeted_ ? session_->TakeDesired() : std::nullopt;
  }
  std::optional<v1::Adopt> TakeAdopt() override {
    return greeted_ ? session_->TakeAdopt() : std::nullopt;
  }
  int64_t TakenNs() const override { return greeted_ ? session_->TakenNs() : 0; }
  void SetServed(const v1::StorePosition& served) override { *hello_.mutable_served() = served; }
  void Send(v1::NodeReport report) override {
    if (greeted_) session_->Send(std::move(report));
  }
  std::chrono::milliseconds report_interval() const override {
    return session_ ? session_->report_interval() : kReportInterval;
  }
  absl::Status state() const override { return state_; }
  uint64_t failures() const override { return failures_; }

 private:
  void Failed(const absl::Status& why, Clock::time_point now) {
    session_.reset();
    greeted_ = false;
    state_ = why;
    ++failures_;
    next_try_ = now + delay_;
    delay_ = std::min(2 * delay_, kLongestDelay);
  }

  const client::Connection connection_;
  v1::AgentHello hello_;
  std::unique_ptr<Session> session_;
  bool greeted_ = false;
  Clock::time_point next_try_{};
  std::chrono::milliseconds delay_ = kFirstDelay;
  absl::Status state_ = absl::UnavailableError("nobody answers yet");
  uint64_t failures_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorLink>> CoordinatorLink::Open(
    const client::ClientOptions& options, const v1::AgentHello& hello) {
  ASSIGN_OR_RETURN(client::Connection connection, client::Connect(options));
  return std::make_unique<GrpcLink>(std::move(connection), hello);
}

}  // namespace trireme::agent
