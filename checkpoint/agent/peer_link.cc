// One io_context has the listener, all connections, and one timer that looks at their deadlines.
#include "checkpoint/agent/peer_link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "checkpoint/agent/peer_connection.h"
#include "checkpoint/format/parity.h"
#include "runtime/base/status_macros.h"

namespace trireme::checkpoint {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;
using std::chrono::milliseconds;

absl::StatusOr<tcp::endpoint> EndpointOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  uint32_t port = 0;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  Error error;
  const auto ip = asio::ip::make_address(host, error);
  if (colon == std::string::npos || error || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port > 65535) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' is no address of an agent's frames; expected IP:PORT or [IPV6]:PORT", address));
  }
  return tcp::endpoint(ip, static_cast<uint16_t>(port));
}

// Programs that this one starts must get none of its sockets: Asio has no word for that.
int NewSocket(const tcp::endpoint& of) {
  return socket(of.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// False: `fd` is none, or the loop cannot wait for it.
bool Adopt(int fd, const tcp& protocol, tcp::socket& socket) {
  Error error;
  if (fd >= 0) socket.assign(protocol, fd, error);
  if (fd >= 0 && error) close(fd);
  return fd >= 0 && !error;
}

class AsioLink : public PeerLink {
 public:
  AsioLink(const PeerLinkOptions& options, PeerEvents& events)
      : shared_{options, events,
                [this](PeerConnection& one, const absl::Status& why) { Closed(one, why); }},
        acceptor_(io_),
        ticks_(io_) {
    const auto shortest =
        std::min({options.connect_time, options.greeting_time, options.frame_time});
    tick_ = std::clamp(shortest / 8, milliseconds(2), milliseconds(100));
  }

  ~AsioLink() override {
    for (const auto& [id, one] : connections_) one->Abort();
  }

  absl::Status Listen() {
    ASSIGN_OR_RETURN(const tcp::endpoint at, EndpointOf(shared_.options.address));
    protocol_ = at.protocol();
    const int fd = NewSocket(at);
    Error error = fd < 0 ? Error(errno, boost::system::system_category()) : Error();
    if (!error) acceptor_.assign(protocol_, fd, error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(at, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (!error) port_ = acceptor_.local_endpoint(error).port();
    if (error) {
      return absl::FailedPreconditionError(
          fmt::format("cannot listen for other agents at {}: {}; give this agent another port",
                      shared_.options.address, error.message()));
    }
    AwaitConnection();
    AwaitTick();
    return absl::OkStatus();
  }

  uint16_t port() const override { return port_; }

  absl::StatusOr<PeerId> Dial(const PeerToDial& to) override {
    ASSIGN_OR_RETURN(const tcp::endpoint at, EndpointOf(to.address));
    if (at.port() == 0 || to.member >= kMaxParityMembers || to.own_member >= kMaxParityMembers ||
        to.member == to.own_member) {
      return absl::InvalidArgumentError(
          fmt::format("cannot dial member {} at {} as member {}: expected a port, and two "
                      "different members below {}",
                      to.member, to.address, to.own_member, kMaxParityMembers));
    }
    tcp::socket socket(io_);
    if (connections_.size() >= shared_.options.most_connections ||
        !Adopt(NewSocket(at), at.protocol(), socket)) {
      return absl::ResourceExhaustedError(
          fmt::format("cannot dial {}: {} connections are there, or no descriptor is left",
                      to.address, connections_.size()));
    }
    const auto one = Add(std::move(socket));
    one->Dial(at, to);
    return one->id();
  }

  absl::Status Send(PeerId to, OutgoingFrame frame) override {
    const auto found = connections_.find(to);
    if (found == connections_.end()) return absl::NotFoundError("there is no such connection");
    return found->second->Send(std::move(frame));
  }

  void End(PeerId peer) override {
    if (const auto found = connections_.find(peer); found != connections_.end()) {
      const auto held = found->second;
      held->End();
    }
  }

  void Abort(PeerId peer) override {
    if (const auto found = connections_.find(peer); found != connections_.end()) {
      found->second->Abort();
      connections_.erase(found);
    }
  }

  void RunFor(milliseconds time) override {
    io_.restart();
    time > milliseconds::zero() ? io_.run_for(time) : io_.poll();
  }
  void Return() override { io_.stop(); }
  void Post(std::function<void()> call) override { asio::post(io_, std::move(call)); }

 private:
  std::shared_ptr<PeerConnection> Add(tcp::socket socket) {
    const PeerId id{++last_id_};
    const auto one = std::make_shared<PeerConnection>(id, std::move(socket), shared_);
    connections_[id] = one;
    return one;
  }

  void AwaitConnection() {
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const Error& error) {
      if (error) return;  // the end
      const int fd =
          accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      // With the next tick some may be free again.
      listens_ = fd >= 0 || (errno != EMFILE && errno != ENFILE && errno != ENOBUFS);
      if (tcp::socket socket(io_); Adopt(fd, protocol_, socket)) Take(std::move(socket));
      if (listens_) AwaitConnection();
    });
  }

  void Take(tcp::socket socket) {
    if (connections_.size() >= shared_.options.most_connections && !RefuseOldest()) {
      Error ignored;
      socket.set_option(asio::socket_base::linger(true, 0), ignored);
      return;
    }
    Add(std::move(socket))->Accept();
  }

  // Of those that have not proved anything; false: all are peers, or dialled.
  bool RefuseOldest() {
    for (const auto& [id, one] : connections_) {
      if (one->was_up() || one->dialled()) continue;
      const auto held = one;
      held->Abort();
      Closed(*held, absl::ResourceExhaustedError("others wait to be greeted"));
      return true;
    }
    return false;
  }

  void AwaitTick() {
    ticks_.expires_after(tick_);
    ticks_.async_wait([this](const Error& error) {
      if (error) return;
      std::vector<std::shared_ptr<PeerConnection>> all;
      for (const auto& [id, one] : connections_) all.push_back(one);
      const auto now = PeerConnection::Clock::now();
      for (const auto& one : all) one->CheckDeadlines(now);
      if (!listens_) {
        listens_ = true;
        AwaitConnection();
      }
      AwaitTick();
    });
  }

  // Once for each that was not aborted.
  void Closed(PeerConnection& one, const absl::Status& why) {
    connections_.erase(one.id());
    if (one.dialled() || one.was_up()) {
      shared_.events.Down(one.id(), why);
    } else {
      shared_.events.Refused(one.address(), why);
    }
  }

  const PeerShared shared_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  tcp protocol_ = tcp::v4();
  uint16_t port_ = 0;
  bool listens_ = true;
  asio::steady_timer ticks_;
  milliseconds tick_{0};
  uint64_t last_id_ = 0;
  std::map<PeerId, std::shared_ptr<PeerConnection>> connections_;  // oldest first
};

}  // namespace

absl::StatusOr<std::unique_ptr<PeerLink>> PeerLink::Start(const PeerLinkOptions& options,
                                                          PeerEvents& events) {
  auto link = std::make_unique<AsioLink>(options, events);
  RETURN_IF_ERROR(link->Listen());
  return std::unique_ptr<PeerLink>(std::move(link));
}

}  // namespace trireme::checkpoint
