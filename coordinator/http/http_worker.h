// Serves one connection after another: reads requests, has them answered, writes the answers.
#pragma once

#include <functional>
#include <memory>

#include "coordinator/http/host_check.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/route_table.h"
#include "coordinator/http/socket_stream.h"

namespace trireme::coordinator {

// What all workers share; it outlives them.
struct HttpRules {
  HttpOptions options;
  RouteTable routes;
  HostCheck hosts;
  std::function<bool()> hurry;  // others wait, or the end has come: keep no idle connection
};

// One thread.
class HttpWorker {
 public:
  static std::unique_ptr<HttpWorker> Make(const HttpRules& rules);
  virtual ~HttpWorker() = default;
  // Returns when the connection is to be closed.
  virtual void Serve(SocketStream& stream) = 0;
};

}  // namespace trireme::coordinator
