// A call object deletes itself when gRPC is done with it.
#include "coordinator/keeper/attempt_service.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "coordinator/keeper/fresher.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/plan/slice.h"

namespace trireme::keeper {
namespace {

using Clock = std::chrono::steady_clock;

// Beside one stream and one question of each rank: those of ranks that have just been cut off.
constexpr uint32_t kSpareCalls = 16;
constexpr size_t kLongestText = 256;

grpc::Status Leftover(const std::string& why) {
  return {grpc::StatusCode::FAILED_PRECONDITION, why + ": this rank is a leftover and is to end"};
}

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), base::MessageOf(status)};
}

grpc::Status TooMany() {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          "too many calls of this attempt's ranks are under way"};
}

class JoinCall : public grpc::ServerUnaryReactor {
 public:
  JoinCall(AttemptService& service, const v1::JoinRequest& request, v1::JoinResponse& response)
      : service_(service), entered_(service.Enter()) {
    const int rank = static_cast<int>(request.rank());
    const auto answer = [this, ended = ended_, rank, &response](const auto& plan) {
      if (ended->exchange(true)) return;
      if (plan.ok()) *response.mutable_plan() = plan::SliceOf(**plan, rank);
      Finish(ToGrpc(plan.status()));
    };
    const grpc::Status admitted = entered_ ? service.Admit(request, answer) : TooMany();
    if (!admitted.ok()) End(admitted);
  }
  // The plan may come much later: a rank that has left, or a keeper that hangs up, does not wait.
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    if (entered_) service_.Leave();
    delete this;
  }

 private:
  void End(const grpc::Status& status) {
    if (!ended_->exchange(true)) Finish(status);
  }

  AttemptService& service_;
  const bool entered_;
  // Who comes first finishes it; who comes after that finds it gone.
  const std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

class ReportStream : public grpc::ServerReadReactor<v1::RankStatus> {
 public:
  explicit ReportStream(AttemptService& service) : service_(service), entered_(service.Enter()) {
    entered_ ? StartRead(&status_) : Finish(TooMany());
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    const grpc::Status taken = service_.Take(status_);
    taken.ok() ? StartRead(&status_) : Finish(taken);
  }
  void OnDone() override {
    if (entered_) service_.Leave();
    delete this;
  }

 private:
  AttemptService& service_;
  const bool entered_;
  v1::RankStatus status_;
};

}  // namespace

grpc::ServerUnaryReactor* AttemptService::Join(grpc::CallbackServerContext* /*context*/,
                                               const v1::JoinRequest* request,
                                               v1::JoinResponse* response) {
  return new JoinCall(*this, *request, *response);
}

grpc::ServerReadReactor<v1::RankStatus>* AttemptService::Report(
    grpc::CallbackServerContext* /*context*/, v1::ReportResponse* /*response*/) {
  return new ReportStream(*this);
}

Seat AttemptService::seat() const {
  const absl::MutexLock lock(&mutex_);
  return seat_;
}

void AttemptService::SetSeat(const Seat& seat) {
  const absl::MutexLock lock(&mutex_);
  seat_ = seat;
}

bool AttemptService::Enter() {
  const absl::MutexLock lock(&mutex_);
  if (calls_ >= 2 * seat_.ranks_here + kSpareCalls) return false;
  ++calls_;
  return true;
}

void AttemptService::Leave() {
  const absl::MutexLock lock(&mutex_);
  --calls_;
}

grpc::Status AttemptService::CheckSeat(uint64_t job_id, uint32_t attempt, uint32_t rank) const {
  if (job_id != seat_.job_id || attempt != seat_.attempt) {
    return Leftover(base::Text("here is attempt ", seat_.attempt, " of job ", seat_.job_id,
                               ", not attempt ", attempt, " of job ", job_id));
  }
  if (!seat_.wanted) {
    return Leftover(base::Text("attempt ", attempt, " of job ", job_id, " is not wanted any more"));
  }
  if (rank < seat_.first_rank || rank - seat_.first_rank >= seat_.ranks_here) {
    return Leftover(base::Text("rank ", rank, " is not of this node, which has ",
                               base::Counted(seat_.ranks_here, "rank"), " from rank ",
                               seat_.first_rank, " on"));
  }
  return grpc::Status::OK;
}

grpc::Status AttemptService::Admit(const v1::JoinRequest& request,
                                   const PlanShelf::Answer& answer) {
  Seat seat;
  {
    const absl::MutexLock lock(&mutex_);
    const grpc::Status checked = CheckSeat(request.job_id(), request.attempt(), request.rank());
    if (!checked.ok()) return checked;
    seat = seat_;
  }
  if (request.ranks() != seat.ranks) {
    return Leftover(base::Text("the attempt has ", base::Counted(seat.ranks, "rank"), ", not ",
                               request.ranks()));
  }
  plan_->Get(seat, disks_, answer);
  return grpc::Status::OK;
}

grpc::Status AttemptService::Take(const v1::RankStatus& status) {
  const absl::MutexLock lock(&mutex_);
  const v1::RankReport& rank = status.rank();
  const grpc::Status checked = CheckSeat(status.job_id(), status.attempt(), rank.rank());
  if (!checked.ok()) return checked;
  if (rank.position().size() > kLongestText) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            base::Text("a position of ", rank.position().size(), " bytes; at most ", kLongestText)};
  }
  Said& said = said_[rank.rank()];
  if (rank.step() > step_) {
    step_ = rank.step();
    step_since_ns_ = std::min(said.looked_ns, base::BoottimeNs());  // it may say what it likes
  }
  said = {rank, Clock::now(), status.looked_boottime_ns()};
  said.rank.clear_failure();
  if (rank.rank() == 0 && status.has_progress()) progress_ = status.progress();
  return grpc::Status::OK;
}

StepNews AttemptService::step() const {
  const absl::MutexLock lock(&mutex_);
  return {seat_.job_id, seat_.attempt, step_, step_since_ns_, seat_.store};
}

void AttemptService::Freshen(v1::AttemptReport& report) const {
  const absl::MutexLock lock(&mutex_);
  const auto now = Clock::now();
  for (v1::RankReport& seen : *report.mutable_ranks()) {
    const auto said = said_.find(seen.rank());
    if (said == said_.end()) continue;
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - said->second.when);
    TakeFresher(said->second.rank, static_cast<uint64_t>(age.count()), seen);
  }
  if (seat_.first_rank == 0) TakeFresher(progress_, report);
}

}  // namespace trireme::keeper
