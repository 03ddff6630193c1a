// A session is one stream of gRPC's callback interface: one read and one write under way. It has a
// connection of its own: what is dialled again is another one.
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
#include "runtime/base/text.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::agent {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFirstDelay(200);
constexpr std::chrono::milliseconds kLongestDelay(5000);
constexpr std::chrono::milliseconds kReportInterval(1000);
// A hello is answered, and each report, by a daemon whose store fails too. Beyond what gRPC's own
// pings allow, whose timers wait by the time of day: set back by an hour, they take an hour more.
constexpr std::chrono::seconds kSilence(60);
// For so long at most one turn of the owner's loop counts: who has stood still has not listened.
constexpr std::chrono::seconds kLongestTurn(5);
constexpr size_t kMostSent = 1000;  // reports whose times are remembered

class Session : public grpc::ClientBidiReactor<v1::FromAgent, v1::ToAgent> {
 public:
  // `connection`: outlives this.
  Session(const std::shared_ptr<grpc::Channel>& channel, const client::Connection& connection,
          const v1::AgentHello& hello)
      : place_(connection.place), stub_(channel) {
    client::Identify(context_, connection.token);
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
    unanswered_ = true;
    sent_.push_back({report.number(), base::BoottimeNs()});
    if (sent_.size() > kMostSent) sent_.pop_front();
    next_ = std::move(report);
    Write();
  }
  int64_t TakenNs() const {
    const absl::MutexLock lock(&mutex_);
    return taken_ns_;
  }
  // How long nothing has come since we spoke; `turn` has gone by since the last call.
  Clock::duration Silence(Clock::duration turn) {
    const absl::MutexLock lock(&mutex_);
    if (unanswered_) silence_ += turn;
    return silence_;
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
      unanswered_ = false;
      silence_ = {};
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
                          : client::StatusOfCall(client::ErrorOf(status), place_);
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

  const client::CallPlace& place_;
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
  std::deque<Sent> sent_ ABSL_GUARDED_BY(mutex_);  // and not yet taken
  int64_t taken_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<v1::AgentWelcome> welcome_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::DesiredAttempts> desired_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Adopt> adopt_ ABSL_GUARDED_BY(mutex_);
  bool unanswered_ ABSL_GUARDED_BY(mutex_) = true;  // at first the hello
  Clock::duration silence_ ABSL_GUARDED_BY(mutex_){};
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

class GrpcLink : public CoordinatorLink {
 public:
  GrpcLink(client::Connection connection, v1::AgentHello hello)
      : connection_(std::move(connection)), hello_(std::move(hello)) {}

  bool Poll(Clock::time_point now) override {
    const Clock::duration turn = std::min<Clock::duration>(now - polled_, kLongestTurn);
    polled_ = now;
    if (session_) {
      if (const auto ended = session_->ended()) {
        Failed(*ended, now);
      } else if (session_->Silence(turn) > kSilence) {
        Failed(Silent(), now);
      } else if (session_->welcomed() && !greeted_) {
        greeted_ = true;
        delay_ = kFirstDelay;
        state_ = absl::OkStatus();
        return true;
      }
    }
    if (!session_ && now >= next_try_) {
      if (const auto channel = connection_.own_channel(); channel.ok()) {
        session_ = std::make_unique<Session>(*channel, connection_, hello_);
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
    if (!greeted_) return;
    report.set_number(++number_);
    session_->Send(std::move(report));
  }
  std::chrono::milliseconds report_interval() const override {
    return session_ ? session_->report_interval() : kReportInterval;
  }
  absl::Status state() const override { return state_; }
  uint64_t failures() const override { return failures_; }

 private:
  absl::Status Silent() const {
    return absl::UnavailableError(base::Text("the coordinator at ", connection_.place.address,
                                             session_->welcomed()
                                                 ? " has answered no report for a minute"
                                                 : " has not answered our dial for a minute"));
  }
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
  // Counts on over the sessions: a report of an older one may be taken while a newer one stands.
  // One of this agent's former life too; it has fewer nanoseconds behind it.
  uint64_t number_ = static_cast<uint64_t>(base::BoottimeNs());
  Clock::time_point polled_ = Clock::now();
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
