// Patterns and paths are compared segment by segment; there are a few dozen routes.
#include "coordinator/http/route_table.h"

#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace trireme::coordinator {
namespace {

std::vector<std::string> SegmentsOf(const std::string& path) { return absl::StrSplit(path, '/'); }

bool IsVariable(const std::string& segment) {
  return segment.size() > 2 && segment.front() == '{' && segment.back() == '}';
}

std::optional<std::map<std::string, std::string>> Fit(const std::vector<std::string>& pattern,
                                                      const std::vector<std::string>& path) {
  if (path.size() != pattern.size()) return std::nullopt;
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string& segment = pattern[i];
    if (IsVariable(segment)) {
      if (path[i].empty()) return std::nullopt;
      values[segment.substr(1, segment.size() - 2)] = path[i];
    } else if (segment != path[i]) {
      return std::nullopt;
    }
  }
  return values;
}

}  // namespace

RouteTable::RouteTable(std::vector<HttpRoute> routes) {
  for (HttpRoute& route : routes) {
    std::vector<std::string> segments = SegmentsOf(route.pattern);
    entries_.push_back({std::move(route), std::move(segments)});
  }
}

RouteMatch RouteTable::Find(const std::string& method, const std::string& path) const {
  const std::vector<std::string> segments = SegmentsOf(path);
  const std::string wanted = method == "HEAD" ? "GET" : method;
  std::vector<std::string> allowed;
  for (const Entry& entry : entries_) {
    auto values = Fit(entry.segments, segments);
    if (!values) continue;
    if (entry.route.method == wanted) return {&entry.route, std::move(*values), ""};
    allowed.push_back(entry.route.method);
  }
  return {nullptr, {}, absl::StrJoin(allowed, ", ")};
}

}  // namespace trireme::coordinator
