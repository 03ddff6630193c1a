// The daemon's ears: services Control and AgentLink, health and reflection, on a unix socket and,
// if asked for, on a TCP port with tokens and TLS. gRPC's threads call in; every change is posted
// to the reconciler's thread, every read is answered from the JobTable.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/calls/access.h"
#include "coordinator/calls/rates.h"
#include "coordinator/calls/store_reads.h"
#include "coordinator/control_api/call_observer.h"
#include "coordinator/control_api/connection_gate.h"
#include "coordinator/control_api/socket_door.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/planning/submission.h"
#include "coordinator/process/task_thread.h"
#include "coordinator/reconciler/reconciler.h"

namespace trireme::coordinator {

struct ListenOptions {
  SocketOptions socket;  // its path empty: none
  std::string address;   // "host:port", port 0: any; empty: none
  // PEM files; all empty: plain text, which `address` allows on loopback alone.
  std::string certificate_file;
  std::string key_file;
  std::string client_ca_file;  // with it, clients need a certificate by it (mutual TLS)
};

struct Limits {
  int most_message_bytes = 4 << 20;
  // Of each kind: watchers, readers of logs, readers of files.
  int most_streams = 1000;
  int most_streams_of_user = 500;
  GateBounds connections;  // of the unix socket
  // Of each user.
  Rate submits{50, 500};
  Rate calls{500, 2000};
};

// Numbers for new jobs, each with a run folder that nobody else has. Called on threads that may
// hang, so both own what they touch.
struct RunFolders {
  std::function<absl::StatusOr<uint64_t>()> reserve;  // absent: the reconciler gives numbers
  std::function<void(uint64_t id)> release;           // of a job that has not come to be
  std::string folder = "/";                           // that they are in
};

// All outlive the server.
struct ApiRooms {
  std::shared_ptr<JobStore> store;  // calls that hang have it too
  JobTable& table;
  Reconciler& reconciler;  // touched on its thread alone
  TaskThread& reconciler_thread;
  TaskThread& checker;  // plans what is submitted
  DiskCalls& disks;     // of run folders; to be stopped before the server ends
  StoreReads& reads;    // of `table` and `store`; likewise
  const Access& access;
  SubmissionRules rules;
  std::chrono::milliseconds lease;  // of agents
  CallObserver calls;               // empty: nobody is told
  // A link into the dashboard for this caller; absent: there is none.
  std::function<std::string(const Caller&)> dashboard_link = {};
  RunFolders run_folders = {};
  std::chrono::milliseconds lost_node_after{0};     // of ReconcilerOptions
  StoreIdentity identity = {};                      // of `store`, for agents
  std::map<std::string, std::string> holders = {};  // of the names of nodes, as stored
  std::string state_folder = "/";                   // that the store is in
  // Threads that wait for file systems in vain, of those that the server has itself.
  std::shared_ptr<std::atomic<size_t>> hanging = std::make_shared<std::atomic<size_t>>(0);
};

class ApiServer {
 public:
  static absl::StatusOr<std::unique_ptr<ApiServer>> Start(const ListenOptions& listen,
                                                          const Limits& limits,
                                                          const ApiRooms& rooms);
  // Ends all streams; waits for handlers, at most some seconds.
  virtual ~ApiServer() = default;
  // The port of `address`; 0: none.
  virtual int port() const = 0;
  // Tokens were read again: streams and agents' links end whose tokens were taken back. Any thread.
  virtual void EndUnknown() = 0;
  // Nodes whose agents have spoken since the last call; what they have said waits for the
  // reconciler, or found its queue full. Any thread.
  virtual std::set<std::string> TakeSpoken() = 0;
  // On the reconciler's thread: gives the agent of `node`, if it is connected, what it is to have.
  virtual void SendDesired(const std::string& node, const v1::DesiredAttempts& desired) = 0;
  // Likewise, that it is to serve this store, from that revision of its desired state on.
  virtual void SendAdopt(const std::string& node, uint64_t revision) = 0;
  // Likewise, that its report of this number has been taken.
  virtual void SendTaken(const std::string& node, uint64_t number) = 0;
};

}  // namespace trireme::coordinator
