// Who is told of the calls of the API: for metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace grpc {
class ServerBuilder;
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

// All calls of the server that `builder` makes; also the health and reflection services.
void Observe(const CallObserver& observer, grpc::ServerBuilder& builder);

}  // namespace trireme::coordinator
