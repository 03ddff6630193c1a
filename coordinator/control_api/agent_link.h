// The service AgentLink: one stream per node. What an agent says is posted to the reconciler; what
// a node is to have goes out whole, the newest alone.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/control_api/api_server.h"
#include "coordinator/control_api/call.h"
#include "coordinator/reconciler/node_leases.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::coordinator {

class AgentSession;

// Threads: gRPC's, and the reconciler's for SendDesired.
class AgentLinkService : public v1::AgentLink::CallbackService {
 public:
  explicit AgentLinkService(const ApiRooms& rooms);

  using Context = grpc::CallbackServerContext;
  grpc::ServerBidiReactor<v1::FromAgent, v1::ToAgent>* Connect(Context* context) override;

  std::set<std::string> TakeSpoken() { return leases_.TakeSpoken(); }
  void SendDesired(const std::string& node, const v1::DesiredAttempts& desired);
  void SendAdopt(const std::string& node, uint64_t revision);
  void SendTaken(const std::string& node, uint64_t number);
  // Sessions end whose agents' tokens were taken back.
  void EndUnknownStreams();
  void EndStreams();

 private:
  friend class AgentSession;
  // The session of the node from now on; the former one is ended.
  void Enter(const std::string& node, AgentSession* session);
  void Leave(const std::string& node, AgentSession* session);

  const ApiRooms rooms_;
  NodeLeases leases_;
  absl::Mutex mutex_;
  std::map<std::string, AgentSession*> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
