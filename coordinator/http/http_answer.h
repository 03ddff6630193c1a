// What a request is answered: refused, or by the handler of its route.
#pragma once

#include <string>

#include "coordinator/http/host_check.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/route_table.h"

namespace trireme::coordinator {

// What all requests share.
struct HttpRules {
  HttpOptions options;
  RouteTable routes;
  HostCheck hosts;
};

// `why` goes to the caller.
HttpResponse Refusal(int status, std::string why);
// Path and query of the request line, "/jobs/a%2Fb?x=1", into those of `request`. False: it is no
// path of ours ("*", "..", control characters, bad escapes).
bool TakeTarget(const std::string& target, HttpRequest& request);
// By what is in its head alone; status 200: nothing speaks against it. `request` has no body yet.
HttpResponse Judge(const HttpRules& rules, const HttpRequest& request);
// Runs the handler, which may block; its exceptions are a 500. The headers of safety are set.
HttpResponse Answer(const HttpRules& rules, HttpRequest request);
// To an answer that no handler gives.
void AddHeadersOfSafety(HttpResponse& response);

}  // namespace trireme::coordinator
