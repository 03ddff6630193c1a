// The daemon's services over rooms in memory, in this process: listening at a unix socket and at a
// port of 127.0.0.1, with people who have tokens, and jobs that are there already.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/control_api/api_server.h"
#include "tests/coordinator/job_store/held_store.h"
#include "tests/coordinator/run_files/scratch.h"
#include "trireme/v1/control.grpc.pb.h"

namespace trireme::coordinator {

// A job of a tiny model; `text_file` is what it trains on.
v1::JobSpec TinyJob(const std::string& text_file);

class ServedStore {
 public:
  // `reads`: of StoreReads. `store`: in place of one in memory.
  explicit ServedStore(const Limits& limits = {}, const UserCaps& caps = {},
                       DiskCallsOptions reads = {.name = "store reads"},
                       std::unique_ptr<JobStore> store = nullptr);
  ~ServedStore();

  // A completed job, with a run folder. To be called before Serve.
  v1::Job AddJob(uint64_t id, const std::string& owner);
  // As it is now. To be called before Serve.
  void PutJob(const v1::Job& job);
  // So many events of a job, to the store alone. Likewise.
  void AddEvents(uint64_t job_id, size_t count);
  // All of ApiRooms.
  void Serve(std::chrono::milliseconds lease = std::chrono::seconds(10),
             std::chrono::milliseconds lost_node_after = std::chrono::milliseconds(0),
             RunFolders run_folders = {});
  // Of the service; what lies in folder() is there still.
  void End();
  // What readers see of it, as after a commit; the reconciler does not know. After Serve.
  void PublishJob(const v1::Job& job);
  // What its ranks told last. To be called after Serve.
  void PutProgress(uint64_t job_id, uint64_t steps_done);

  // The token of that holder stands in the file no more, which is read again. To be called after
  // Serve.
  void TakeBack(const std::string& holder);

  const std::string& folder() const { return scratch_.path(); }
  HeldStore& store() { return *store_; }
  ApiServer& server() { return *server_; }
  // Of submissions; after Serve.
  TaskThread& checker() { return *planner_; }
  TaskThread& reconciler_thread() { return *reconciler_thread_; }
  std::string socket() const { return folder() + "/s.sock"; }
  // Of one who comes with the token of `user` (ann and ben may submit, ola is an operator, root an
  // admin, agent has the role agent and the user name ann); others' tokens are not known, and ""
  // has none. Each a connection of its own.
  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& user);
  std::unique_ptr<v1::Control::Stub> StubOf(const std::string& user);
  // To be called for the context of each call: token and a generous deadline.
  static void Prepare(grpc::ClientContext& context, const std::string& user);

 private:
  const Scratch scratch_;
  const Limits limits_;
  const UserCaps caps_;
  Access access_;
  const std::shared_ptr<HeldStore> store_;
  const std::shared_ptr<JobTable> table_ = std::make_shared<JobTable>();
  std::unique_ptr<Reconciler> reconciler_;
  std::unique_ptr<TaskThread> planner_;
  std::unique_ptr<TaskThread> reconciler_thread_;
  DiskCalls disks_{{.name = "disk"}};
  StoreReads reads_;
  std::unique_ptr<ApiServer> server_;
};

}  // namespace trireme::coordinator
