// Who is told of the calls of the API: for metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace grpc::experimental {
class ServerInterceptorFactoryInterface;
}

namespace trireme::coordinator {

struct CallObserver {
  // "/trireme.v1.Control/Submit". Called from gRPC's threads; must not block.
  std::function<void(const std::string& method)> begins;
  // `code`: "OK", "NOT_FOUND"; "CANCELLED" also where the caller has gone before the answer.
  std::function<void(const std::string& method, const std::string& code, bool stream,
                     double seconds)>
      ends;
};

// To be given to the server's builder: all calls, also those of health and reflection. Both
// functions of `observer` are there.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Observed(
    const CallObserver& observer);

}  // namespace trireme::coordinator
