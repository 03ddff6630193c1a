#include "coordinator/control_api/submissions.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>
#include <vector>

#include "coordinator/control_api/call.h"
#include "runtime/base/status_macros.h"
#include "runtime/report/message_json.h"
#include "runtime/report/plan_view.h"

namespace trireme::coordinator {
namespace {

using Unary = grpc::ServerUnaryReactor;

constexpr size_t kMostPending = 2000;
constexpr size_t kMostPendingOfUser = kMostPending / 2;
// Between two steps of a check, as two pieces of the text.
constexpr std::chrono::seconds kStep(5);  // less than callers wait

std::vector<v1::ErrorDetail> DetailsOf(const std::vector<spec::Fault>& faults) {
  std::vector<v1::ErrorDetail> details;
  for (const spec::Fault& fault : faults) {
    v1::ErrorDetail& detail = details.emplace_back();
    detail.set_field(fault.path.empty() ? "job" : "job." + fault.path);
    detail.set_message(fault.message);
  }
  return details;
}

// Without the instructions, which may be many megabytes.
void Describe(const CheckedJob& checked, v1::PreviewPlanResponse& response) {
  response.set_text(report::DescribePlan(checked.plan, {}));
  v1::Plan plan = checked.plan;
  for (v1::StagePlan& stage : *plan.mutable_stages()) {
    stage.clear_step();
    stage.clear_evaluate();
    stage.clear_generate();
  }
  response.set_json(report::MessageJson(plan, {.with_zeros = false}));
  response.set_ranks(checked.resources.ranks());
  *response.mutable_resources() = checked.resources;
}

}  // namespace

// A call that knows, for those who outlive it too, whether its caller has left.
class Submissions::Call : public Unary {
 public:
  using Left = std::shared_ptr<std::atomic<bool>>;
  void OnCancel() override { *left_ = true; }
  void OnDone() override { delete this; }
  const Left& left() const { return left_; }

 private:
  const Left left_ = std::make_shared<std::atomic<bool>>(false);
};

class Submissions::Held {
 public:
  absl::Status Take(const std::string& user) {
    const absl::MutexLock lock(&mutex_);
    const auto own = of_user_.find(user);
    const size_t of_user = own == of_user_.end() ? 0 : own->second;
    if (all_ < kMostPending && of_user < kMostPendingOfUser) {
      ++all_;
      ++of_user_[user];
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(
        fmt::format("{} jobs{} are being checked already; try again later",
                    all_ < kMostPending ? of_user : all_, all_ < kMostPending ? " of yours" : ""));
  }
  void Give(const std::string& user) {
    const absl::MutexLock lock(&mutex_);
    --all_;
    const auto own = of_user_.find(user);
    if (--own->second == 0) of_user_.erase(own);
  }

 private:
  absl::Mutex mutex_;
  size_t all_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> of_user_ ABSL_GUARDED_BY(mutex_);
};

// One call, whoever has it at the moment. `call` and the responses are there until it is finished.
struct Submissions::Pending {
  Pending(std::shared_ptr<Held> held, Caller caller, v1::JobSpec job)
      : held(std::move(held)), caller(std::move(caller)), job(std::move(job)) {}
  ~Pending() { held->Give(caller.user); }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  void Finish(const absl::Status& status) const { call->Finish(ToGrpc(status)); }
  CallerLeft caller_left() const {
    return [left = left] { return left->load(); };
  }

  const std::shared_ptr<Held> held;
  const Caller caller;
  const v1::JobSpec job;
  Call* const call = new Call;
  const Call::Left left = call->left();
  Submission submission;
  SubmissionCheck check;
  v1::SubmitResponse* submitted = nullptr;
  v1::PreviewPlanResponse* previewed = nullptr;
};

Submissions::Submissions(const ApiRooms& rooms)
    : rooms_(rooms),
      held_(std::make_shared<Held>()),
      disks_({.name = "checks",
              .most_waiting = kMostPending,
              .deadline = kStep,
              .hanging_of_all = rooms.hanging}),
      store_disk_({.name = "submissions",
                   .most_waiting = kMostPending,
                   .deadline = kStep,
                   .hanging_of_all = rooms.hanging}) {}

absl::StatusOr<Submissions::Shared> Submissions::Take(const Caller& caller,
                                                      const v1::JobSpec& job) {
  RETURN_IF_ERROR(held_->Take(caller.user));
  return std::make_shared<Pending>(held_, caller, job);
}

Submissions::Unary* Submissions::Refuse(const absl::Status& status) {
  auto* call = new Call;
  call->Finish(QueueFull(status));
  return call;
}

Unary* Submissions::Submit(const Caller& caller, const v1::SubmitRequest& request,
                           v1::SubmitResponse* response) {
  const auto pending = Take(caller, request.job());
  if (!pending.ok()) return Refuse(pending.status());
  Submission& submission = (*pending)->submission;
  submission.owner = caller.user;
  submission.request_id = request.request_id();
  submission.real_paths = rooms_.rules.real_paths();
  submission.uncapped = IsUncapped(caller);
  (*pending)->submitted = response;
  Unary* const call = (*pending)->call;
  FindBefore(*pending);
  return call;
}

Unary* Submissions::Preview(const Caller& caller, const v1::PreviewPlanRequest& request,
                            v1::PreviewPlanResponse* response) {
  const auto pending = Take(caller, request.job());
  if (!pending.ok()) return Refuse(pending.status());
  (*pending)->previewed = response;
  Unary* const call = (*pending)->call;
  Check(*pending, &Submissions::Tell);
  return call;
}

// A repeat is answered without a look at the files, which may be gone.
void Submissions::FindBefore(const Shared& pending) {
  const absl::Status begun = store_disk_.Begin(
      {rooms_.state_folder, pending->caller.user},
      [store = rooms_.store, owner = pending->caller.user, id = pending->submission.request_id] {
        auto before = store->FindRequest(owner, id);
        return before.ok() ? std::move(before) : OfStore(before.status(), kRequestUnknown);
      },
      [this, pending](const absl::StatusOr<std::optional<uint64_t>>& before) {
        if (!before.ok()) return pending->Finish(before.status());
        if (*before) return Repeat(pending);
        Check(pending, &Submissions::Reserve);
      });
  if (!begun.ok()) pending->call->Finish(NotBegun(begun));
}

// The job may have been forgotten since it was found: nothing is known of this one then.
void Submissions::Repeat(const Shared& pending) {
  const absl::Status posted = rooms_.reconciler_thread.Post(
      [this, pending] {
        const Submission& submission = pending->submission;
        const absl::Status known = rooms_.access.StillKnows(pending->caller);
        if (!known.ok()) return pending->Finish(known);
        const auto before =
            rooms_.reconciler.FindSubmitted(submission.owner, submission.request_id);
        if (!before.ok()) return pending->Finish(before.status());
        if (!*before) {
          return pending->Finish(absl::AbortedError(
              "the job of this request has just been forgotten; submit it again"));
        }
        *pending->submitted->mutable_job() = **before;
        pending->submitted->set_repeated(true);
        pending->Finish(absl::OkStatus());
      },
      pending->caller.user);
  if (!posted.ok()) pending->call->Finish(QueueFull(posted));
}

void Submissions::Check(const Shared& pending, Next next) {
  DiskPath where{"/", pending->caller.user};
  where.also = PathsOf(pending->job);
  if (!where.also.empty()) where.path = where.also.front();
  where.pulse = std::make_shared<DiskPulse>();
  const absl::Status begun = disks_.Begin(
      where,
      [job = pending->job, rules = rooms_.rules, left = pending->left,
       pulse = where.pulse]() -> absl::StatusOr<SubmissionCheck> {
        return CheckFiles(
            job, rules, [&] { return !pulse->Beat() || left->load(); },
            [&](const std::string& path) { return pulse->BeatAt(path); });
      },
      [this, pending, next](absl::StatusOr<SubmissionCheck> found) {
        if (!found.ok()) return pending->Finish(found.status());
        pending->check = *std::move(found);
        const SubmissionCheck& check = pending->check;
        if (check.status.ok()) return Plan(pending, next);
        pending->call->Finish(ToGrpc(check.status, DetailsOf(check.faults)));
      });
  if (!begun.ok()) pending->call->Finish(NotBegun(begun));
}

// Unless the caller has left by then, or his token was taken back: what nobody waits for holds
// nobody up.
void Submissions::Plan(const Shared& pending, Next next) {
  const absl::Status posted = rooms_.checker.Post(
      [this, pending, next] {
        if (pending->left->load()) return pending->call->Finish(grpc::Status::CANCELLED);
        const absl::Status known = rooms_.access.StillKnows(pending->caller);
        if (!known.ok()) return pending->Finish(known);
        SubmissionCheck& check = pending->check;
        PlanChecked(check, rooms_.rules, pending->caller_left());
        if (check.status.ok()) return (this->*next)(pending);
        pending->call->Finish(ToGrpc(check.status, DetailsOf(check.faults)));
      },
      pending->caller.user);
  if (!posted.ok()) pending->call->Finish(QueueFull(posted));
}

void Submissions::Reserve(const Shared& pending) {
  pending->submission.job = std::move(pending->check.checked.job);
  pending->submission.resources = std::move(pending->check.checked.resources);
  if (!rooms_.run_folders.reserve) return Hand(pending);
  DiskPath where{rooms_.run_folders.folder, pending->caller.user};
  where.also = {rooms_.state_folder};
  const absl::Status begun = store_disk_.Begin(where, rooms_.run_folders.reserve,
                                               [this, pending](absl::StatusOr<uint64_t> id) {
                                                 if (!id.ok()) return pending->Finish(id.status());
                                                 pending->submission.id = *id;
                                                 Hand(pending);
                                               });
  if (!begun.ok()) pending->call->Finish(NotBegun(begun));
}

void Submissions::Hand(const Shared& pending) {
  const absl::Status posted = rooms_.reconciler_thread.Post(
      [this, pending] {
        const Submission& submission = pending->submission;
        const absl::Status known = rooms_.access.StillKnows(pending->caller);
        auto result = known.ok() ? rooms_.reconciler.Submit(submission, NowUnixNs())
                                 : absl::StatusOr<v1::SubmitResponse>(known);
        // Of what the disk says, or a damaged store, it may be there all the same.
        const absl::Status& end = result.status();
        const bool may_be_there = absl::IsUnavailable(end) || absl::IsDataLoss(end);
        const bool unused = result.ok() ? result->repeated() : !may_be_there;
        if (unused) Release(submission.id);
        if (result.ok()) *pending->submitted = std::move(*result);
        pending->Finish(result.status());
      },
      pending->caller.user);
  if (posted.ok()) return;
  Release(pending->submission.id);
  pending->call->Finish(QueueFull(posted));
}

void Submissions::Tell(const Shared& pending) {
  Describe(pending->check.checked, *pending->previewed);
  const absl::Status posted = rooms_.reconciler_thread.Post(
      [this, pending] {
        const std::string capped = IsUncapped(pending->caller) ? "" : pending->caller.user;
        const std::string wait = rooms_.reconciler.WouldWaitFor(
            pending->previewed->resources(), pending->check.checked.job, NowUnixNs(), capped);
        *pending->previewed->mutable_text() +=
            fmt::format("now              {}\n", wait.empty() ? "there is room for it" : wait);
        pending->call->Finish(grpc::Status::OK);
      },
      pending->caller.user);
  if (!posted.ok()) pending->call->Finish(QueueFull(posted));
}

// What cannot be removed stays, empty: its number is passed over.
void Submissions::Release(uint64_t id) {
  if (id == 0 || !rooms_.run_folders.release) return;
  (void)store_disk_.Begin(
      {rooms_.run_folders.folder},
      [release = rooms_.run_folders.release, id] {
        release(id);
        return absl::OkStatus();
      },
      [](const absl::Status&) {});
}

}  // namespace trireme::coordinator
