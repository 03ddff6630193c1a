// What gRPC answers to a request whose bytes are no message of its kind is UNIMPLEMENTED; here it
// becomes INVALID_ARGUMENT.
#pragma once

#include <memory>

namespace grpc::experimental {
class ServerInterceptorFactoryInterface;
}

namespace trireme::coordinator {

// To be given to the server's builder. For services that answer each of their calls.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> UnreadableRequests();

}  // namespace trireme::coordinator
