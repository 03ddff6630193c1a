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
  // The same, over a connection of its own also where the place is named: gRPC gives channels to
  // one address one connection between them, silent or not.
  std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>()> own_channel;
  std::string token;
  CallPlace place;
};

// Errors: those of Client::Open.
absl::StatusOr<Connection> Connect(const ClientOptions& options);

CallError ErrorOf(const grpc::Status& status);

// To be called for the context of each call; nothing for an empty token.
void Identify(grpc::ClientContext& context, const std::string& token);

}  // namespace trireme::client
