// A page of another origin cannot read our answers; that it cannot ask for changes either is shown
// by a header that such a page may not set, and by the browser's word of where a request came from.
#include "coordinator/dashboard/dashboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/dashboard/json_text.h"
#include "coordinator/dashboard/web_files.h"
#include "coordinator/process/task_thread.h"
#include "runtime/base/status_macros.h"

namespace trireme::dashboard {
namespace {

using coordinator::HttpRequest;
using coordinator::HttpResponse;

constexpr char kJson[] = "application/json";
constexpr char kOurHeader[] = "x-trireme";  // of every request that changes something
constexpr char kPolicy[] =
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

int HttpCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

HttpResponse JsonResponse(const Api::Answer& answer) {
  HttpResponse response;
  response.content_type = kJson;
  response.status = answer.ok() ? 200 : HttpCodeOf(answer.status().code());
  response.body = answer.ok() ? *answer : JsonText({{"error", base::MessageOf(answer.status())}});
  return response;
}

const char* TypeOf(std::string_view name) {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/html; charset=utf-8";
}

HttpResponse FileResponse(std::string_view name, int status = 200) {
  HttpResponse response;
  const auto files = WebFiles();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const WebFile& file) { return file.name == name; });
  if (found == files.end()) {
    response.status = 404;
    response.body = "There is no such page.\n";
    return response;
  }
  response.status = status;
  response.content_type = TypeOf(name);
  response.body = found->content;
  response.headers.emplace_back("Content-Security-Policy", kPolicy);
  return response;
}

// A browser gives a host's cookies to all its ports: the name tells apart several daemons.
std::string CookieName(const HttpRequest& request) {
  const std::string host = request.Header("host");
  const size_t colon = host.rfind(':');
  std::string port = colon == std::string::npos ? "80" : host.substr(colon + 1);
  if (port.find_first_not_of("0123456789") != std::string::npos) port = "80";
  return "trireme_session_" + port;
}

bool IsOurs(const HttpRequest& request) {
  if (request.Header(kOurHeader).empty()) return false;
  const std::string site = request.Header("sec-fetch-site");
  if (!site.empty() && site != "same-origin") return false;
  const std::string origin = request.Header("origin");
  return origin.empty() || origin == "http://" + request.Header("host") ||
         origin == "https://" + request.Header("host");
}

const absl::Status& NoSession() {
  static const absl::Status status =
      absl::UnauthenticatedError("this session has ended; trireme dashboard prints a new link");
  return status;
}

const absl::Status& NotOurs() {
  static const absl::Status status =
      absl::PermissionDeniedError("only the dashboard's own page may ask for this");
  return status;
}

}  // namespace

std::vector<coordinator::HttpRoute> Dashboard::Routes() {
  const auto read = [this](Reader reader) {
    return [this, reader](const Request& request) { return Read(request, reader); };
  };
  const auto job = [this](const Request& request) { return Job(request); };
  return {
      {"GET", "/", [this](const Request& request) { return Home(request); }},
      {"GET", "/login", [this](const Request& request) { return Login(request); }},
      {"POST", "/logout", [this](const Request& request) { return Logout(request); }},
      {"GET", "/assets/{name}",
       [](const Request& request) { return FileResponse(request.path_values.at("name")); }},
      {"GET", "/api/cluster", read(&Api::Cluster)},
      {"GET", "/api/jobs", read(&Api::Jobs)},
      {"GET", "/api/events", read(&Api::Events)},
      {"GET", "/api/jobs/{id}", job},
      {"GET", "/api/jobs/{id}/{part}", job},
      {"POST", "/api/jobs/{id}/{action}", [this](const Request& request) { return Ask(request); }},
  };
}

std::string Dashboard::MakeLink(const coordinator::Caller& caller) {
  return "/login?key=" + sessions_.MakeKey(caller, coordinator::NowUnixNs());
}

std::optional<coordinator::Caller> Dashboard::CallerOf(const Request& request) {
  return sessions_.Find(request.Cookie(CookieName(request)), coordinator::NowUnixNs());
}

Dashboard::Response Dashboard::Home(const Request& request) {
  return CallerOf(request) ? FileResponse("index.html") : FileResponse("welcome.html", 401);
}

// The page that follows is asked for by ours, not by a redirect: a browser that came from elsewhere
// would not give its SameSite=Strict cookie there. HEAD, as programs that preview links send it,
// spends no key.
Dashboard::Response Dashboard::Login(const Request& request) {
  const auto secret = request.method == "GET"
                          ? sessions_.Redeem(request.Query("key"), coordinator::NowUnixNs())
                          : std::nullopt;
  if (!secret && CallerOf(request)) return FileResponse("entered.html");
  if (!secret) return FileResponse("welcome.html", 401);
  Response response = FileResponse("entered.html");
  response.headers.emplace_back(
      "Set-Cookie",
      fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}", CookieName(request),
                  *secret, std::chrono::seconds(Sessions::kLongestLife).count()));
  return response;
}

Dashboard::Response Dashboard::Logout(const Request& request) {
  if (!IsOurs(request)) return JsonResponse(NotOurs());
  const std::string name = CookieName(request);
  sessions_.End(request.Cookie(name));
  Response response = JsonResponse(JsonText(Json::object()));
  response.headers.emplace_back("Set-Cookie",
                                name + "=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
  return response;
}

Dashboard::Response Dashboard::Read(const Request& request, Reader reader) {
  const auto caller = CallerOf(request);
  if (!caller) return JsonResponse(NoSession());
  return JsonResponse((api_.*reader)(request, *caller));
}

Dashboard::Response Dashboard::Job(const Request& request) {
  const auto caller = CallerOf(request);
  if (!caller) return JsonResponse(NoSession());
  return JsonResponse(api_.Job(request, *caller));
}

Dashboard::Response Dashboard::Ask(const Request& request) {
  const auto caller = CallerOf(request);
  if (!caller) return JsonResponse(NoSession());
  if (!IsOurs(request)) return JsonResponse(NotOurs());
  return JsonResponse(api_.Ask(request, *caller));
}

}  // namespace trireme::dashboard
