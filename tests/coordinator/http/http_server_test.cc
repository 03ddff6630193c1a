// Routes, and what strangers may try: everything is answered or closed, nothing lasts for ever.
#include "coordinator/http/http_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/coordinator/http/http_caller.h"

namespace trireme::coordinator {
namespace {

using Server = std::unique_ptr<HttpServer>;

HttpResponse Said(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

std::vector<HttpRoute> SomeRoutes() {
  const auto echo = [](const HttpRequest& request) { return Said(request.body); };
  return {
      {"GET", "/", [](const HttpRequest&) { return Said("home"); }},
      {"GET", "/jobs/{id}",
       [](const HttpRequest& request) {
         return Said(request.path_values.at("id") + "?" + request.Query("q") + "&" +
                     request.Cookie("session") + "@" + request.peer);
       }},
      {"GET", "/files/{name}",
       [](const HttpRequest& request) { return Said(request.path_values.at("name")); }},
      {"POST", "/echo", echo},
      {"PUT", "/echo", echo},
      {"GET", "/throws",
       [](const HttpRequest&) -> HttpResponse { throw std::runtime_error("secret"); }},
      {"GET", "/headers",
       [](const HttpRequest&) {
         HttpResponse response = Said(std::string(20000, 'x'));
         response.headers = {{"Cache-Control", "max-age=5"},
                             {"X-Bad", "a\r\nSet-Cookie: session=1"},
                             {"X-Good", "a"}};
         return response;
       }},
  };
}

Server Started(HttpOptions options = {}) {
  if (options.address.empty()) options.address = "127.0.0.1:0";
  auto server = HttpServer::Start(options, SomeRoutes());
  REQUIRE(server.ok());
  REQUIRE((*server)->port() > 0);
  return std::move(*server);
}

std::string Post(const std::string& more, const std::string& body) {
  return "POST /echo HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n" + body;
}

std::string Sized(const std::string& body) {
  return Post("Content-Length: " + std::to_string(body.size()) + "\r\n", body);
}

int Status(const Server& server, const std::string& request) {
  return StatusOf(Ask(server->port(), request));
}

}  // namespace

TEST_CASE("HTTP routes by method and path") {
  const Server server = Started();
  const int port = server->port();
  CHECK(server->address() == "127.0.0.1:" + std::to_string(port));
  CHECK(BodyOf(Ask(port, Get("/"))) == "home");
  CHECK(BodyOf(Ask(port, Get("/jobs/12?q=a%20b", "Cookie: x=1; session=s3\r\n"))) ==
        "12?a b&s3@127.0.0.1");
  CHECK(BodyOf(Ask(port, Get("/files/a%20b"))) == "a b");
  CHECK(Status(server, Get("/files/a/b")) == 404);
  CHECK(Status(server, Get("/files/a%2Fb")) == 404);
  CHECK(BodyOf(Ask(port, Sized("hello"))) == "hello");
  CHECK(Status(server, Get("/jobs/")) == 404);
  CHECK(Status(server, Get("/jobs/1/")) == 404);
  CHECK(Status(server, Get("/nothing")) == 404);
  const std::string refused = Ask(port, Get("/echo"));
  CHECK(StatusOf(refused) == 405);
  CHECK(refused.find("Allow: POST, PUT\r\n") != std::string::npos);
  const std::string head = Ask(port, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(StatusOf(head) == 200);
  CHECK(head.find("Content-Length: 4\r\n") != std::string::npos);
}

TEST_CASE("HTTP answers carry headers of safety and are not rewritten") {
  const Server server = Started();
  const std::string plain = Ask(server->port(), Get("/"));
  for (const char* line :
       {"Cache-Control: no-store\r\n", "X-Content-Type-Options: nosniff\r\n",
        "X-Frame-Options: DENY\r\n", "Content-Security-Policy: default-src 'none'"}) {
    CHECK(plain.find(line) != std::string::npos);
  }
  const std::string own = Ask(
      server->port(), Get("/headers", "Accept-Encoding: gzip, br\r\nRange: bytes=0-1,0-1,0-1\r\n"));
  CHECK(StatusOf(own) == 200);
  CHECK(BodyOf(own) == std::string(20000, 'x'));
  CHECK(own.find("Cache-Control: max-age=5\r\n") != std::string::npos);
  CHECK(own.find("no-store") == std::string::npos);
  CHECK(own.find("X-Good: a\r\n") != std::string::npos);
  CHECK(own.find("Set-Cookie") == std::string::npos);
  const std::string thrown = Ask(server->port(), Get("/throws"));
  CHECK(StatusOf(thrown) == 500);
  CHECK(thrown.find("secret") == std::string::npos);
}

TEST_CASE("HTTP refuses what it does not take") {
  const Server server = Started();
  CHECK(Status(server, Sized(std::string(64 << 10, 'x'))) == 200);
  CHECK(Status(server, Sized(std::string((64 << 10) + 1, 'x'))) == 413);
  CHECK(Status(server, Post("Content-Length: 99999999999999999999\r\n", "")) == 400);
  CHECK(Status(server, Post("Content-Length: -1\r\n", "")) == 400);
  CHECK(Status(server, Post("Content-Length: 1\r\nContent-Length: 2\r\n", "ab")) == 400);
  CHECK(Status(server, Post("Transfer-Encoding: chunked\r\n", "1\r\na\r\n0\r\n\r\n")) == 411);
  CHECK(Status(server, Post("Content-Encoding: gzip\r\nContent-Length: 1\r\n", "x")) == 415);
  CHECK(Status(server, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n") == 421);
  CHECK(Status(server, "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n") == 421);
  CHECK(Status(server, "GET / HTTP/1.1\r\n\r\n") == 421);
  CHECK(Status(server, "GET / HTTP/1.1\r\nHost: LOCALHOST:8470\r\n\r\n") == 200);
  CHECK(Status(server, "GET / HTTP/1.1\r\nHost: [::1]:8470\r\n\r\n") == 200);
  CHECK(Status(server, Get("/files/../../etc/passwd")) == 400);
  CHECK(Status(server, Get("/files/%2e%2e/x")) == 400);
  CHECK(Status(server, Get("/files/a%00b")) == 400);
  CHECK(Status(server, "GARBAGE\r\n\r\n") == 400);
  CHECK(Status(server, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n") == 400);
  CHECK(Status(server, Get("/" + std::string(9000, 'a'))) == 414);
  // Longer than any head may be: closed without more ado.
  CHECK(Status(server, Get("/", "X: " + std::string(1 << 20, 'a') + "\r\n")) != 200);
  std::string many = "1-2";
  while (many.size() < 7900) many += ",1-2";
  CHECK(Status(server, Get("/", "rAnge: bytes=" + many + "\r\n")) == 200);
  CHECK(Status(server, Get("/")) == 200);
}

TEST_CASE("HTTP names that callers may use can be added") {
  HttpOptions options;
  options.names = {"Trireme.example"};
  const Server server = Started(options);
  CHECK(Status(server, "GET / HTTP/1.1\r\nHost: trireme.EXAMPLE:443\r\n\r\n") == 200);
  CHECK(Status(server, "GET / HTTP/1.1\r\nHost: trireme.example.evil\r\n\r\n") == 421);
}

TEST_CASE("HTTP connections serve several requests and are ended when idle or worn") {
  HttpOptions options;
  options.most_requests = 3;
  // Longer than a busy machine stands still between two lines of this test.
  options.idle_time = std::chrono::seconds(2);
  const Server server = Started(options);
  {
    HttpCaller caller(server->port());
    caller.Say(Get("/") + Sized("one") + Get("/jobs/7"));
    CHECK(BodyOf(caller.Answer()) == "home");
    CHECK(BodyOf(caller.Answer()) == "one");
    const std::string last = caller.Answer();
    CHECK(BodyOf(last) == "7?&@127.0.0.1");
    CHECK(last.find("Connection: close\r\n") != std::string::npos);
    CHECK(caller.Closed());
  }
  HttpCaller idle(server->port());
  idle.Say(Get("/"));
  CHECK(BodyOf(idle.Answer()) == "home");
  CHECK(idle.Closed());
}

TEST_CASE("HTTP requests must be there in time however slowly they come") {
  HttpOptions options;
  options.request_time = std::chrono::milliseconds(300);
  const Server server = Started(options);
  HttpCaller head(server->port());
  head.Say("GET / HTTP/1.1\r\nHost: localhost\r\n");
  // Each byte comes early enough for a deadline between bytes; all of them never do.
  std::thread dripping([&head] {
    for (int i = 0; i < 600 && head.Say("x"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  const std::string answer = head.Answer();
  dripping.join();
  CHECK((answer.empty() || StatusOf(answer) == 400));
  HttpCaller body(server->port());
  body.Say(Post("Content-Length: 10\r\n", "123"));
  CHECK(StatusOf(body.Answer()) == 408);
  CHECK(body.Closed());
}

TEST_CASE("HTTP requests for which no thread is free wait, and beyond that hear 503") {
  HttpOptions options;
  options.address = "127.0.0.1:0";
  options.threads = 1;
  options.most_waiting = 1;
  absl::Notification begun, go;
  auto server = HttpServer::Start(options, {{"GET", "/", [&](const HttpRequest&) {
                                               if (!begun.HasBeenNotified()) begun.Notify();
                                               go.WaitForNotificationWithTimeout(absl::Seconds(60));
                                               return Said("served");
                                             }}});
  REQUIRE(server.ok());
  HttpCaller served((*server)->port());
  served.Say(Get("/"));
  REQUIRE(begun.WaitForNotificationWithTimeout(absl::Seconds(60)));
  // One of these waits and the others are refused; which, the machine decides.
  std::vector<std::unique_ptr<HttpCaller>> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(std::make_unique<HttpCaller>((*server)->port()));
    others.back()->Say(Get("/"));
  }
  // Refusals need no thread of a handler.
  HttpCaller bad((*server)->port());
  bad.Say("GARBAGE\r\n\r\n");
  CHECK(StatusOf(bad.Answer()) == 400);
  go.Notify();
  CHECK(BodyOf(served.Answer()) == "served");
  std::multiset<int> statuses;
  for (const auto& other : others) statuses.insert(StatusOf(other->Answer()));
  CHECK(statuses == std::multiset<int>{200, 503, 503});
}

TEST_CASE("HTTP connections beyond their bound take the place of one that is idle") {
  HttpOptions options;
  options.address = "127.0.0.1:0";
  options.most_connections = 2;
  absl::Notification begun, go;
  std::vector<HttpRoute> routes = SomeRoutes();
  routes.push_back({"GET", "/slow", [&](const HttpRequest&) {
                      if (!begun.HasBeenNotified()) begun.Notify();
                      go.WaitForNotificationWithTimeout(absl::Seconds(60));
                      return Said("slow");
                    }});
  auto server = HttpServer::Start(options, std::move(routes));
  REQUIRE(server.ok());
  HttpCaller busy((*server)->port());
  busy.Say(Get("/slow"));
  REQUIRE(begun.WaitForNotificationWithTimeout(absl::Seconds(60)));
  HttpCaller idle((*server)->port());
  idle.Say(Get("/"));
  CHECK(BodyOf(idle.Answer()) == "home");
  HttpCaller next((*server)->port());
  next.Say(Get("/slow"));
  CHECK(idle.Closed());
  CHECK(StatusOf(HttpCaller((*server)->port()).Answer()) == 503);
  go.Notify();
  CHECK(BodyOf(busy.Answer()) == "slow");
  CHECK(BodyOf(next.Answer()) == "slow");
}

TEST_CASE("HTTP asks for a body that its caller holds back, unless its head is refused") {
  const Server server = Started();
  HttpCaller caller(server->port());
  caller.Say(Post("Content-Length: 5\r\nExpect: 100-continue\r\n", ""));
  CHECK(StatusOf(caller.Answer(/*head_only=*/true)) == 100);
  caller.Say("hello");
  CHECK(BodyOf(caller.Answer()) == "hello");
  CHECK(Status(server, Post("Content-Length: 99999\r\nExpect: 100-continue\r\n", "")) == 413);
}

TEST_CASE("HTTP answers what a handler is about when it ends") {
  HttpOptions options;
  options.address = "127.0.0.1:0";
  absl::Notification begun, go;
  auto server = HttpServer::Start(options, {{"GET", "/", [&](const HttpRequest&) {
                                               begun.Notify();
                                               go.WaitForNotificationWithTimeout(absl::Seconds(60));
                                               return Said("served");
                                             }}});
  REQUIRE(server.ok());
  HttpCaller caller((*server)->port());
  caller.Say(Get("/"));
  REQUIRE(begun.WaitForNotificationWithTimeout(absl::Seconds(60)));
  HttpCaller idle((*server)->port());
  std::thread ending([&] { server->reset(); });
  CHECK(idle.Closed());  // so the end has begun
  go.Notify();
  const std::string answer = caller.Answer();
  ending.join();
  CHECK(BodyOf(answer) == "served");
  CHECK(answer.find("Connection: close\r\n") != std::string::npos);
}

TEST_CASE("HTTP sockets are not passed on to programs that are started") {
  const Server server = Started();
  HttpCaller kept(server->port());
  kept.Say(Get("/"));
  CHECK(BodyOf(kept.Answer()) == "home");
  int ours = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in at{};
    socklen_t length = sizeof at;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0) continue;
    if (at.sin_family != AF_INET || ntohs(at.sin_port) != server->port()) continue;
    ++ours;
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(ours == 2);
}

TEST_CASE("HTTP ends with idle and half-said connections open") {
  Server server = Started();
  HttpCaller idle(server->port());
  HttpCaller half(server->port());
  half.Say("GET / HT");
  HttpCaller kept(server->port());
  kept.Say(Get("/"));
  CHECK(BodyOf(kept.Answer()) == "home");
  server.reset();
  CHECK(idle.Closed());
  CHECK(kept.Closed());
}

TEST_CASE("HTTP listens at loopback only unless told otherwise") {
  const auto refusal = [](const std::string& address) {
    HttpOptions options;
    options.address = address;
    return HttpServer::Start(options, {}).status();
  };
  for (const char* open : {"0.0.0.0:0", "[::]:0", "192.0.2.1:80"}) {
    CHECK(absl::IsInvalidArgument(refusal(open)));
  }
  for (const char* bad : {"", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ":80", "::1:80"}) {
    CHECK(absl::IsInvalidArgument(refusal(bad)));
  }
  const Server server = Started();
  CHECK(absl::IsFailedPrecondition(refusal(server->address())));
  HttpOptions options;
  options.address = "0.0.0.0:0";
  options.anywhere = true;
  CHECK(Status(Started(options), Get("/")) == 200);
}

}  // namespace trireme::coordinator
