// Jobs that come in: each is looked at on threads of the file systems that it names, then planned
// by the checker, then given a run folder on the disk of these, then taken by the reconciler. So
// one that names a mount which hangs holds up those that name it too, and nobody else.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/calls/access.h"
#include "coordinator/control_api/api_server.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

class Submissions {
 public:
  using Unary = grpc::ServerUnaryReactor;

  explicit Submissions(const ApiRooms& rooms);

  // Of callers who may ask for that.
  Unary* Submit(const Caller& caller, const v1::SubmitRequest& request,
                v1::SubmitResponse* response);
  Unary* Preview(const Caller& caller, const v1::PreviewPlanRequest& request,
                 v1::PreviewPlanResponse* response);
  // Who waits for a disk is answered, and nobody waits for one from now on.
  void End() {
    disks_.Stop();
    store_disk_.Stop();
  }

 private:
  class Call;
  // How many are under way, for each user: each holds a job of up to 256 KiB.
  class Held;
  struct Pending;
  using Shared = std::shared_ptr<Pending>;
  using Next = void (Submissions::*)(const Shared&);

  absl::StatusOr<Shared> Take(const Caller& caller, const v1::JobSpec& job);
  static Unary* Refuse(const absl::Status& status);
  void FindBefore(const Shared& pending);
  void Repeat(const Shared& pending);
  void Check(const Shared& pending, Next next);
  void Plan(const Shared& pending, Next next);
  void Reserve(const Shared& pending);
  void Hand(const Shared& pending);
  void Tell(const Shared& pending);
  void Release(uint64_t id);

  const ApiRooms rooms_;
  const std::shared_ptr<Held> held_;
  DiskCalls disks_;       // what jobs name
  DiskCalls store_disk_;  // whatever becomes of those: the store, and the folder of run folders
};

}  // namespace trireme::coordinator
