// The dashboard: pages for a browser, the JSON they read, and who may come in. A person gets a link
// from the control API (OpenDashboard); it works once, and leaves the browser with a session.
#pragma once

#include <string>
#include <vector>

#include "coordinator/calls/access.h"
#include "coordinator/dashboard/api.h"
#include "coordinator/dashboard/sessions.h"
#include "coordinator/http/http_server.h"

namespace trireme::dashboard {

// Threads: any. It outlives the server that has its routes.
class Dashboard {
 public:
  // `knows`: who may still come in, as of Sessions.
  explicit Dashboard(DashboardRooms rooms, Sessions::Knows knows = nullptr)
      : api_(std::move(rooms)), sessions_(std::move(knows)) {}

  std::vector<coordinator::HttpRoute> Routes();
  // "/login?key=...", for this caller alone.
  std::string MakeLink(const coordinator::Caller& caller);
  // All browsers need a new link.
  void EndSessions() { sessions_.EndAll(); }

 private:
  using Response = coordinator::HttpResponse;
  using Request = coordinator::HttpRequest;
  using Reader = Api::Answer (Api::*)(const Request&, const coordinator::Caller&) const;

  std::optional<coordinator::Caller> CallerOf(const Request& request);
  Response Home(const Request& request);
  Response Login(const Request& request);
  Response Logout(const Request& request);
  Response Read(const Request& request, Reader reader);
  Response Job(const Request& request);
  Response Ask(const Request& request);

  Api api_;
  Sessions sessions_;
};

}  // namespace trireme::dashboard
