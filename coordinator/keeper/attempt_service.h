// The service of one attempt. It trusts nobody who dials, though only the attempt's own user can:
// ids are compared, messages, calls and streams are bounded, and what a rank says of itself is kept
// once.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/keeper/plan_shelf.h"
#include "coordinator/keeper/seat.h"
#include "trireme/v1/worker.grpc.pb.h"

namespace trireme::keeper {

// Threads: any.
class AttemptService : public v1::WorkerLink::CallbackService {
 public:
  // `disks` reads the plan's file, and outlives it.
  AttemptService(const Seat& seat, coordinator::DiskCalls& disks) : disks_(disks), seat_(seat) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override;
  grpc::ServerReadReactor<v1::RankStatus>* Report(grpc::CallbackServerContext* context,
                                                  v1::ReportResponse* response) override;

  Seat seat() const;
  void SetSeat(const Seat& seat);
  // Puts what the ranks said into the attempt's part of a report.
  void Freshen(v1::AttemptReport& report) const;
  // The newest step that a rank has said it has done.
  StepNews step() const;

  // For the calls. False: too many are under way.
  bool Enter();
  void Leave();
  // OK: `answer` gets the plan, as of PlanShelf. Else it is not called.
  grpc::Status Admit(const v1::JoinRequest& request, const PlanShelf::Answer& answer);
  grpc::Status Take(const v1::RankStatus& status);

 private:
  struct Said {
    v1::RankReport rank;
    std::chrono::steady_clock::time_point when;
    int64_t looked_ns = 0;  // its own word
  };
  grpc::Status CheckSeat(uint64_t job_id, uint32_t attempt, uint32_t rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  coordinator::DiskCalls& disks_;
  const std::shared_ptr<PlanShelf> plan_ = std::make_shared<PlanShelf>();
  mutable absl::Mutex mutex_;
  Seat seat_ ABSL_GUARDED_BY(mutex_);
  uint32_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, Said> said_ ABSL_GUARDED_BY(mutex_);  // by rank
  v1::Progress progress_ ABSL_GUARDED_BY(mutex_);          // of rank 0
  uint64_t step_ ABSL_GUARDED_BY(mutex_) = 0;              // the newest of all
  int64_t step_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trireme::keeper
