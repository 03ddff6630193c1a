// One thread has all connections and never blocks; others run the handlers.
#include "coordinator/http/http_server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "coordinator/http/http_address.h"
#include "coordinator/http/http_answer.h"
#include "coordinator/http/http_connection.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;
using Ready = std::shared_ptr<HttpConnection>;

constexpr char kBusy[] =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n"
    "Content-Length: 0\r\n\r\n";
constexpr std::chrono::milliseconds kPauseWithoutDescriptors(100);

class BeastServer : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, std::vector<HttpRoute> routes, HostAndPort at)
      : at_(std::move(at)),
        rules_{options, RouteTable(std::move(routes)), HostCheck(at_.host, options.names)},
        owner_{rules_,
               [this](const Ready& from, HttpRequest request) {
                 return Pass(from, std::move(request));
               },
               [this](HttpConnection* closed) { connections_.erase(closed); }},
        acceptor_(io_),
        pause_(io_) {}

  ~BeastServer() override {
    if (threads_.empty()) return;
    asio::post(io_, [this] { End(); });
    handlers_work_.reset();
    for (size_t i = 1; i < threads_.size(); ++i) threads_[i].join();
    io_work_.reset();  // what the handlers have answered is written yet
    threads_[0].join();
  }

  absl::Status Start() {
    RETURN_IF_ERROR(Listen());
    Accept();
    threads_.emplace_back([this] { io_.run(); });
    pthread_setname_np(threads_[0].native_handle(), "http");
    for (int i = 0; i < rules_.options.threads; ++i) {
      threads_.emplace_back([this] { handlers_.run(); });
      pthread_setname_np(threads_.back().native_handle(), "http handler");
    }
    return absl::OkStatus();
  }

  int port() const override { return at_.port; }
  std::string address() const override { return at_.Text(); }

 private:
  absl::Status Listen() {
    Error error;
    tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(at_.host, std::to_string(at_.port), tcp::resolver::passive, error);
    for (const tcp::endpoint one : found) {
      // Programs that this one starts must get none of its sockets: Asio has no word for that.
      const int fd = socket(one.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
      error = fd < 0 ? Error(errno, boost::system::system_category()) : Error();
      if (!error) acceptor_.assign(one.protocol(), fd, error);
      if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor_.bind(one, error);
      if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
      if (!error) acceptor_.non_blocking(true, error);
      if (!error) {
        at_.port = acceptor_.local_endpoint().port();
        at_protocol_ = one.protocol();
        return absl::OkStatus();
      }
      Error ignored;
      acceptor_.close(ignored);
    }
    return absl::FailedPreconditionError(
        fmt::format("cannot listen for HTTP at {}: {}; choose another address by --http",
                    at_.Text(), error.message()));
  }

  // From here on on the thread of connections.
  void Accept() {
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const Error& error) {
      if (error) return;  // the end
      const int fd =
          accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      const bool full = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS);
      if (fd >= 0) Take(tcp::socket(io_, at_protocol_, fd));
      if (!full) return Accept();
      pause_.expires_after(kPauseWithoutDescriptors);
      pause_.async_wait([this](const Error& ended) {
        if (!ended) Accept();
      });
    });
  }

  void Take(tcp::socket socket) {
    if (connections_.size() >= rules_.options.most_connections && !EndIdle()) {
      // What does not fit into the socket's empty buffer is not waited for.
      Error ignored;
      socket.write_some(asio::buffer(kBusy, sizeof kBusy - 1), ignored);
      return;
    }
    const auto connection = std::make_shared<HttpConnection>(std::move(socket), owner_);
    connections_[connection.get()] = connection;
    connection->Start();
  }

  // Of the connections that wait for a request the one that has for longest; false: all are busy.
  bool EndIdle() {
    Ready oldest;
    for (const auto& [key, one] : connections_) {
      if (one->idle_since() && (!oldest || *one->idle_since() < *oldest->idle_since())) {
        oldest = one;
      }
    }
    if (oldest) oldest->Close();
    return oldest != nullptr;
  }

  bool Pass(const Ready& from, HttpRequest request) {
    if (requests_ >= static_cast<size_t>(rules_.options.threads) + rules_.options.most_waiting) {
      return false;
    }
    ++requests_;
    const auto given = std::make_shared<HttpRequest>(std::move(request));
    asio::post(handlers_, [this, from, given] {
      const auto answer = std::make_shared<HttpResponse>(Answer(rules_, std::move(*given)));
      asio::post(io_, [this, from, answer] {
        --requests_;
        from->Send(std::move(*answer));
      });
    });
    return true;
  }

  void End() {
    Error ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    std::vector<Ready> all;
    for (const auto& [key, one] : connections_) all.push_back(one);
    for (const Ready& one : all) one->End();
  }

  HostAndPort at_;
  tcp at_protocol_ = tcp::v4();
  const HttpRules rules_;
  const HttpConnectionOwner owner_;
  std::map<HttpConnection*, Ready> connections_;
  size_t requests_ = 0;  // that handlers have, or wait for one
  asio::io_context io_{1};
  asio::io_context handlers_;
  asio::executor_work_guard<asio::io_context::executor_type> io_work_ = asio::make_work_guard(io_);
  asio::executor_work_guard<asio::io_context::executor_type> handlers_work_ =
      asio::make_work_guard(handlers_);
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::vector<std::thread> threads_;  // of connections, then of handlers
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              std::vector<HttpRoute> routes) {
  ASSIGN_OR_RETURN(HostAndPort at, ParseAddress(options.address));
  if (!options.anywhere && !IsLoopbackHost(at.host)) {
    return absl::InvalidArgumentError(fmt::format(
        "{} is open to others, and HTTP here has neither TLS nor, for metrics, a password: listen "
        "on 127.0.0.1 behind a proxy that has them, or give --http-anywhere",
        options.address));
  }
  auto server = std::make_unique<BeastServer>(options, std::move(routes), std::move(at));
  RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace trireme::coordinator
