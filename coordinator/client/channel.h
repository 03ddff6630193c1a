// A channel to the coordinator, for those who speak gRPC themselves: checked options, credentials,
// the token.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/client/call_status.h"
#include "coordinator/client/client.h"

namespace trireme::client {

struct Connection {
  // For one call, or stream, which keeps it: not connected yet. Where nobody has named the place,
  // one of its own: gRPC dials by itself, and is to go nowhere but where it has just been looked
  // (OpenDefaultFolder). PermissionDenied: others may listen there.
  std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>()> channel;
  std::string token;
  CallPlace place;
};

// Errors: those of Client::Open.
absl::StatusOr<Connection> Connect(const ClientOptions& options);

// To be called for the context of each call; nothing for an empty token.
void Identify(grpc::ClientContext& context, const std::string& token);

}  // namespace trireme::client
