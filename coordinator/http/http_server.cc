// A listener, a bounded queue of connections, and threads that serve one connection each.
#include "coordinator/http/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/http/http_worker.h"
#include "coordinator/http/listener.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

constexpr char kBusy[] =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n"
    "Content-Length: 0\r\n\r\n";

std::string FirstOf(const std::multimap<std::string, std::string>& values,
                    const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "" : found->second;
}

class ThreadedServer : public HttpServer {
 public:
  ThreadedServer(const HttpOptions& options, std::vector<HttpRoute> routes, HostAndPort at)
      : at_(std::move(at)),
        rules_{options, RouteTable(std::move(routes)), HostCheck(at_.host, options.names),
               [this] { return Hurry(); }} {}

  ~ThreadedServer() override {
    listener_.reset();
    {
      const absl::MutexLock lock(&mutex_);
      ending_ = true;
      for (const int fd : waiting_) close(fd);
      waiting_.clear();
      // What a handler is about is answered; nobody reads or is waited for any longer.
      for (const int fd : served_) shutdown(fd, SHUT_RD);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Start() {
    ASSIGN_OR_RETURN(listener_, Listener::Open(at_, [this](int fd) { Take(fd); }));
    for (int i = 0; i < rules_.options.threads; ++i) {
      threads_.emplace_back([this] { Work(); });
      pthread_setname_np(threads_.back().native_handle(), "http");
    }
    return absl::OkStatus();
  }

  int port() const override { return listener_->port(); }
  std::string address() const override {
    return fmt::format("{}:{}", HostInUrl(at_.host), listener_->port());
  }

 private:
  // The listener's thread.
  void Take(int fd) {
    const absl::MutexLock lock(&mutex_);
    if (waiting_.size() < rules_.options.most_waiting) {
      waiting_.push_back(fd);
      return;
    }
    // What does not fit into the socket's empty buffer is not waited for.
    if (send(fd, kBusy, sizeof kBusy - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) shutdown(fd, SHUT_RDWR);
    close(fd);
  }

  bool Hurry() {
    const absl::MutexLock lock(&mutex_);
    return ending_ || !waiting_.empty();
  }

  bool Wanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !waiting_.empty(); }

  // The next connection; -1: the end.
  int Next() {
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &ThreadedServer::Wanted));
    if (ending_) return -1;
    const int fd = waiting_.front();
    waiting_.pop_front();
    served_.insert(fd);
    return fd;
  }

  void Work() {
    const auto worker = HttpWorker::Make(rules_);
    for (int fd = Next(); fd >= 0; fd = Next()) {
      SocketStream stream(fd);
      worker->Serve(stream);
      const absl::MutexLock lock(&mutex_);
      served_.erase(fd);  // before the descriptor is closed and may be another's
    }
  }

  const HostAndPort at_;
  absl::Mutex mutex_;
  std::deque<int> waiting_ ABSL_GUARDED_BY(mutex_);
  std::set<int> served_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  const HttpRules rules_;
  std::vector<std::thread> threads_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace

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

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              std::vector<HttpRoute> routes) {
  ASSIGN_OR_RETURN(const HostAndPort at, ParseAddress(options.address));
  if (!options.anywhere && !IsLoopbackHost(at.host)) {
    return absl::InvalidArgumentError(fmt::format(
        "{} is open to others, and HTTP here has neither TLS nor, for metrics, a password: listen "
        "on 127.0.0.1 behind a proxy that has them, or give --http-anywhere",
        options.address));
  }
  auto server = std::make_unique<ThreadedServer>(options, std::move(routes), at);
  RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace trireme::coordinator
