// The daemon's HTTP: a list of routes at one address, for the dashboard, metrics and health. Plain
// HTTP/1.1 without TLS, so loopback only, unless `anywhere` says that somebody has thought of it.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace trireme::coordinator {

struct HttpRequest {
  std::string method;
  std::string path;                                 // decoded, without the query
  std::map<std::string, std::string> path_values;   // of the pattern's {name}
  std::multimap<std::string, std::string> query;    // decoded
  std::multimap<std::string, std::string> headers;  // names in small letters
  std::string body;
  std::string peer;  // IP address of the caller

  // The first one; empty: none.
  std::string Header(const std::string& small_name) const;
  std::string Query(const std::string& name) const;
  // Of the Cookie headers; empty: none.
  std::string Cookie(const std::string& name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Those of security and `Cache-Control: no-store` are set unless they are here.
  std::vector<std::pair<std::string, std::string>> headers;
};

using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

// `pattern`: "/jobs/{id}/log"; {name} takes one segment. The first route that fits answers. One for
// GET answers HEAD as well.
struct HttpRoute {
  std::string method;
  std::string pattern;
  HttpHandler handler;
};

struct HttpOptions {
  std::string address;             // "HOST:PORT", "[::1]:PORT"; port 0: any
  bool anywhere = false;           // HOST need not be loopback
  std::vector<std::string> names;  // further Host names that callers may use
  size_t most_body_bytes = 64 << 10;
  int threads = 12;                                // of handlers
  size_t most_waiting = 64;                        // requests for which no thread is free
  size_t most_connections = 256;                   // beyond, the one that is idle longest ends
  std::chrono::milliseconds request_time{10000};   // from its first byte to its last
  std::chrono::milliseconds response_time{30000};  // until the caller has taken it
  std::chrono::milliseconds idle_time{15000};      // of a connection between requests
  int most_requests = 1000;                        // of a connection
};

class HttpServer {
 public:
  // Listens when it returns. InvalidArgument: the address; Unavailable: it is in use.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           std::vector<HttpRoute> routes);
  // Ends all connections; waits for handlers under way.
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  // "127.0.0.1:8470", with the port that it got.
  virtual std::string address() const = 0;
};

}  // namespace trireme::coordinator
