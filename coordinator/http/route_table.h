// Which route answers a request.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/http/http_server.h"

namespace trireme::coordinator {

struct RouteMatch {
  const HttpRoute* route = nullptr;  // null: none
  std::map<std::string, std::string> values;
  std::string allowed;  // methods of the path, "GET, POST", where only the method does not fit
};

class RouteTable {
 public:
  explicit RouteTable(std::vector<HttpRoute> routes);
  // The table must outlive the match.
  RouteMatch Find(const std::string& method, const std::string& path) const;

 private:
  struct Entry {
    HttpRoute route;
    std::vector<std::string> segments;
  };
  std::vector<Entry> entries_;
};

}  // namespace trireme::coordinator
