#include "coordinator/http/http_answer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace trireme::coordinator {
namespace {

constexpr std::pair<const char*, const char*> kUnlessSet[] = {
    {"Cache-Control", "no-store"},
    {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"}};

bool Printable(const std::string& text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

bool GoodPath(const std::string& path) {
  const std::string closed = path + "/";
  return path.starts_with('/') && Printable(path) && closed.find("/../") == std::string::npos &&
         closed.find("/./") == std::string::npos;
}

std::optional<std::string> Unescape(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (text.size() < i + 3 || !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      return std::nullopt;
    }
    out += absl::HexStringToBytes(text.substr(i + 1, 2));
    i += 2;
  }
  return out;
}

// In a query a plus sign is a space.
std::optional<std::string> UnescapeOfQuery(std::string text) {
  std::replace(text.begin(), text.end(), '+', ' ');
  return Unescape(text);
}

std::string FirstOf(const std::multimap<std::string, std::string>& values,
                    const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "" : found->second;
}

HttpResponse Handle(const HttpRoute& route, const HttpRequest& request) {
  try {
    return route.handler(request);
  } catch (const std::exception& problem) {
    spdlog::error("HTTP {} {}: {}", request.method, route.pattern, problem.what());
    return Refusal(500, "something went wrong; the daemon's log has more");
  }
}

}  // namespace

HttpResponse Refusal(int status, std::string why) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(why) + "\n";
  return response;
}

bool TakeTarget(const std::string& target, HttpRequest& request) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(target, absl::MaxSplits('?', 1));
  const std::optional<std::string> path = Unescape(parts.first);
  if (!path || !GoodPath(*path)) return false;
  request.path = *path;
  for (const auto& field : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(field, absl::MaxSplits('=', 1));
    const auto name = UnescapeOfQuery(pair.first);
    const auto value = UnescapeOfQuery(pair.second);
    if (!name || !value) return false;
    request.query.emplace(*name, *value);
  }
  return true;
}

HttpResponse Judge(const HttpRules& rules, const HttpRequest& request) {
  if (!request.Header("transfer-encoding").empty()) {
    return Refusal(411, "send a Content-Length: chunked bodies are not taken");
  }
  const std::string coding = request.Header("content-encoding");
  if (!coding.empty() && !absl::EqualsIgnoreCase(coding, "identity")) {
    return Refusal(415, "compressed bodies are not taken");
  }
  if (request.headers.count("host") != 1 || !rules.hosts.Allows(request.Header("host"))) {
    return Refusal(421, "this Host is not known here; `triremed --http-name NAME` adds one");
  }
  return {};
}

HttpResponse Answer(const HttpRules& rules, HttpRequest request) {
  RouteMatch match = rules.routes.Find(request.method, request.path);
  HttpResponse response;
  if (match.route != nullptr) {
    request.path_values = std::move(match.values);
    response = Handle(*match.route, request);
  } else if (match.allowed.empty()) {
    response = Refusal(404, "not found");
  } else {
    response = Refusal(405, "this method is not for this path");
    response.headers.emplace_back("Allow", match.allowed);
  }
  AddHeadersOfSafety(response);
  return response;
}

void AddHeadersOfSafety(HttpResponse& response) {
  auto& headers = response.headers;
  // One with a line break would say more than its handler meant.
  std::erase_if(headers,
                [](const auto& one) { return !Printable(one.first) || !Printable(one.second); });
  if (!Printable(response.content_type)) response.content_type.clear();
  for (const auto& [name, value] : kUnlessSet) {
    const bool there = std::any_of(headers.begin(), headers.end(), [name = name](const auto& one) {
      return absl::EqualsIgnoreCase(one.first, name);
    });
    if (!there) headers.emplace_back(name, value);
  }
}

std::string HttpRequest::Header(const std::string& small_name) const {
  return FirstOf(headers, small_name);
}

std::string HttpRequest::Query(const std::string& name) const { return FirstOf(query, name); }

std::string HttpRequest::Cookie(const std::string& name) const {
  const auto [begin, end] = headers.equal_range("cookie");
  for (auto line = begin; line != end; ++line) {
    for (const std::string& part : std::vector<std::string>(absl::StrSplit(line->second, "; "))) {
      if (part.starts_with(name + "=")) return part.substr(name.size() + 1);
    }
  }
  return "";
}

}  // namespace trireme::coordinator
