// A channel to the coordinator, for those who speak gRPC themselves: checked options, credentials,
// the token.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/client/call_status.h"
#include "coordinator/client/client.h"

namespace trireme::client {

struct Connection {
  std::shared_ptr<grpc::Channel> channel;  // not connected yet
  std::string token;
  CallPlace place;
};

// Errors: those of Client::Open.
absl::StatusOr<Connection> Connect(const ClientOptions& options);

// To be called for the context of each call; nothing for an empty token.
void Identify(grpc::ClientContext& context, const std::string& token);

}  // namespace trireme::client
