// What every handler does alike: who calls, and Status to the words of gRPC. The one header of this
// room that includes gRPC; for its own files only.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/calls/rates.h"
#include "coordinator/client/error_details.h"
#include "coordinator/control_api/api_server.h"
#include "coordinator/control_api/local_servers.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {

// Cut to what every client takes: gRPC's take 8 KiB of an answer's metadata, and tell a longer
// error as one of their own.
grpc::Status ToGrpc(const absl::Status& status, const std::vector<v1::ErrorDetail>& details = {});

inline absl::StatusOr<Caller> CallerOf(const grpc::CallbackServerContext& context,
                                       const Access& access) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  const std::string_view authorization =
      found == metadata.end() ? std::string_view()
                              : std::string_view(found->second.data(), found->second.size());
  return access.Identify(LocalCallerOf(context), authorization);
}

// Of a thread that takes no more at present.
inline grpc::Status QueueFull(const absl::Status& status) {
  return ToGrpc(WithRetryAfter(status, kFullForMs));
}

// Of a disk that is not asked: too much waits for it, or it hangs.
inline grpc::Status NotBegun(const absl::Status& status) { return ToGrpc(NotAsked(status)); }

// An answer that is there at once.
inline grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context,
                                      const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace trireme::coordinator
