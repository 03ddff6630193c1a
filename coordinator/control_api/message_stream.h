// The streams of coordinator/calls over gRPC.
#pragma once

#include "coordinator/calls/disk_stream.h"
#include "coordinator/calls/paced_stream.h"
#include "coordinator/control_api/call.h"

namespace trireme::coordinator {

template <typename Response>
class GrpcWire : public grpc::ServerWriteReactor<Response> {
 protected:
  void SendMessage(const Response* response) { this->StartWrite(response); }
  void EndCall(const absl::Status& status) { this->Finish(ToGrpc(status)); }
};

template <typename Response>
using MessageStream = PacedStream<Response, GrpcWire<Response>>;

template <typename Response, typename Piece>
using FromDiskStream = DiskStream<Response, Piece, GrpcWire<Response>>;

}  // namespace trireme::coordinator
