// A PeerLink with a thread of its own, what it was told, and a peer of plain sockets that may do
// whatever it likes. Waits have deadlines.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/agent/peer_link.h"

namespace trireme::checkpoint {

inline constexpr std::chrono::seconds kPatience(30);
inline constexpr uint64_t kTestJob = 17, kTestAttempt = 5;
inline constexpr uint32_t kTestGroup = 3;

inline AttemptKey TestKey(int seed = 1) {
  AttemptKey key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(seed + 5 * i);
  return key;
}

using Memory = std::vector<std::byte>;

inline Memory Pattern(size_t size, int seed) {
  Memory bytes(size);
  for (size_t x = 0; x < size; ++x) bytes[x] = static_cast<std::byte>(7 * x + x / 251 + 31 * seed);
  return bytes;
}

// The agent of member 0 unless it is told another one. Not to be asked from within events.
class TestAgent : public PeerEvents {
 public:
  struct Frame {
    FrameHeader header;
    Memory payload;
  };

  explicit TestAgent(PeerLinkOptions options = {}, int key = 1) : key_(TestKey(key)) {
    options.address = "127.0.0.1:0";
    auto started = PeerLink::Start(options, *this);
    if (!started.ok()) return;
    link_ = std::move(*started);
    port_ = link_->port();
    thread_ = std::thread([this] {
      while (!done_) link_->RunFor(std::chrono::milliseconds(20));
    });
  }
  ~TestAgent() override { Stop(); }
  void Stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
    link_.reset();
  }

  uint16_t port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // `call` on the link's thread, and what it gives.
  template <typename Call>
  auto Do(Call call) {
    using Result = decltype(call(*link_));
    auto task = std::make_shared<std::packaged_task<Result()>>([&] { return call(*link_); });
    auto result = task->get_future();
    link_->Post([task] { (*task)(); });
    return result.get();
  }
  absl::StatusOr<PeerId> Dial(const std::string& address, uint16_t own = 4, uint16_t other = 0) {
    return Do([&](PeerLink& link) {
      return link.Dial({address, kTestJob, kTestAttempt, kTestGroup, own, other, key_});
    });
  }
  absl::Status Send(PeerId to, const OutgoingFrame& frame) {
    return Do([&](PeerLink& link) { return link.Send(to, frame); });
  }
  void End(PeerId peer) {
    Do([&](PeerLink& link) { return link.End(peer), 0; });
  }
  void Abort(PeerId peer) {
    Do([&](PeerLink& link) { return link.Abort(peer), 0; });
  }

  // False: `is` has not become true, of what is below, which only it may look at.
  template <typename Is>
  bool Await(Is is) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, is);
  }
  template <typename Look>
  auto Seen(Look look) {
    const std::lock_guard lock(mutex_);
    return look();
  }
  bool AwaitUp() {
    return Await([this] { return !ups.empty(); });
  }
  // The first one that came up; waits for it.
  PeerId Peer() {
    return AwaitUp() ? Seen([this] { return ups.front(); }) : PeerId{};
  }
  // Why the first connection that ended has; waits for it.
  absl::Status FirstDown() {
    const bool some = Await([this] { return !downs.empty(); });
    return some ? Seen([this] { return downs.front().second; }) : absl::AbortedError("none ended");
  }
  absl::Status FirstRefused() {
    const bool some = Await([this] { return !refused.empty(); });
    return some ? Seen([this] { return refused.front(); }) : absl::AbortedError("none was refused");
  }

  std::vector<PeerId> ups;
  std::map<PeerId, std::vector<Frame>> frames;
  std::map<PeerId, size_t> sent;
  std::vector<std::pair<PeerId, absl::Status>> downs;
  std::vector<absl::Status> refused;
  size_t places = 0;
  std::set<uint16_t> absent;    // members that are no peers of this agent
  bool takes_no_piece = false;  // Place refuses

  absl::StatusOr<AttemptKey> KeyOf(const LinkGreeting& greeting) override {
    const std::lock_guard lock(mutex_);
    if (greeting.to != 0 || absent.contains(greeting.from)) {
      return absl::NotFoundError("no such member is here");
    }
    return key_;
  }
  void Up(PeerId peer, const LinkGreeting&) override {
    Note([&] { ups.push_back(peer); });
  }
  absl::StatusOr<std::span<std::byte>> Place(PeerId peer, const FrameHeader& header) override {
    const std::lock_guard lock(mutex_);
    ++places;
    if (takes_no_piece) return absl::FailedPreconditionError("no round is under way");
    staged_[peer].resize(header.payload_bytes);
    return std::span(staged_[peer]);
  }
  void Received(PeerId peer, const FrameHeader& header,
                std::span<const std::byte> payload) override {
    Note([&] { frames[peer].push_back({header, {payload.begin(), payload.end()}}); });
  }
  void Sent(PeerId peer, const FrameHeader&) override {
    Note([&] { ++sent[peer]; });
  }
  void Down(PeerId peer, const absl::Status& why) override {
    Note([&] { downs.emplace_back(peer, why); });
  }
  void Refused(const std::string&, const absl::Status& why) override {
    Note([&] { refused.push_back(why); });
  }

 private:
  template <typename Change>
  void Note(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  const AttemptKey key_;
  std::unique_ptr<PeerLink> link_;
  uint16_t port_ = 0;
  std::atomic<bool> done_ = false;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<PeerId, Memory> staged_;
};

// A socket that blocks, for so long at most.
class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {
    const timeval longest{kPatience.count(), 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  }
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RawSocket() { Close(); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  int fd() const { return fd_; }

  static RawSocket Dialled(uint16_t port) {
    RawSocket made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = Loopback(port);
    connect(made.fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    return made;
  }
  static RawSocket Listening(int backlog = 8) {
    RawSocket made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in at = Loopback(0);
    bind(made.fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at);
    listen(made.fd_, backlog);
    return made;
  }
  RawSocket Accepted() const { return RawSocket(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)); }
  uint16_t port() const {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size);
    return ntohs(at.sin_port);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port()); }

  // False: not all of it was taken.
  bool Send(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return true;
  }
  // Fewer: the end came first.
  Memory Receive(size_t size) const {
    Memory bytes(size);
    size_t got = 0;
    while (got < size) {
      const ssize_t count = recv(fd_, bytes.data() + got, size - got, 0);
      if (count <= 0) break;
      got += static_cast<size_t>(count);
    }
    bytes.resize(got);
    return bytes;
  }
  // The peer ends it within the time, by a reset unless `in_order`.
  bool Ended(bool in_order = false) const {
    char byte;
    ssize_t count = 1;
    while (count > 0) count = recv(fd_, &byte, 1, 0);
    return in_order ? count == 0 : count < 0 && errno == ECONNRESET;
  }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }
  int fd_;
};

// Member 4 by hand: knows the key, greets as it should, and then does as the test likes.
class RawMember {
 public:
  explicit RawMember(uint16_t port, int key = 1) : socket(RawSocket::Dialled(port)) {
    const LinkGreeting greeting{LinkSide::kDials,       kTestJob, kTestAttempt, kTestGroup, 4, 0,
                                LinkNonce{std::byte{9}}};
    const LinkGreetingBytes own = FormatGreeting(greeting);
    socket.Send(own);
    const Memory answer = socket.Receive(kLinkGreetingBytes + kLinkProofBytes);
    if (answer.size() != kLinkGreetingBytes + kLinkProofBytes) return;
    LinkGreetingBytes others;
    std::copy_n(answer.begin(), others.size(), others.begin());
    const LinkSecrets secrets = SecretsOf(TestKey(key), own, others);
    sealer.emplace(secrets.key_of_dialler, kTestAttempt);
    proof = secrets.proof_of_dialler;
    socket.Send(proof);
  }
  // As it goes over the wire.
  Memory Sealed(const FrameHeader& header, const Memory& payload) {
    const auto made = *sealer->Seal(header, std::array{std::span<const std::byte>(payload)});
    Memory bytes(made.begin(), made.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
  }

  RawSocket socket;
  std::optional<FrameSealer> sealer;
  LinkProof proof{};
};

inline FrameHeader PieceHeader(uint32_t bytes, uint64_t offset = 0) {
  return {FrameKind::kPiece, 4, 1, 9, offset, bytes, bytes};
}
inline OutgoingFrame MessageOf(std::string text) {
  return {{FrameKind::kMessage, 0, 0, 9, 0, 0, 0}, std::move(text), {}};
}

}  // namespace trireme::checkpoint
