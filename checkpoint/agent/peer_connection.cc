// Reads and writes take what is there and come back to the loop, at most kMostReadBytes each, so
// that connections take turns. A payload's tag is computed while it is still in the caches.
#include "checkpoint/agent/peer_connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace trireme::checkpoint {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr size_t kMostReadBytes = 256 << 10;
// Of a peer without traffic whose node is gone: about eleven seconds.
constexpr int kKeepaliveIdleSeconds = 5, kKeepaliveEverySeconds = 2, kKeepaliveProbes = 3;

LinkNonce NewNonce() {
  LinkNonce nonce;
  TRIREME_CHECK(getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()));
  return nonce;
}

std::string TextOf(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", host, endpoint.port())
                                    : fmt::format("{}:{}", host, endpoint.port());
}

// What is not set is not fatal: there are deadlines besides.
void SetOptions(tcp::socket& socket, std::chrono::milliseconds frame_time) {
  const int fd = socket.native_handle();
  const auto set = [fd](int level, int name, int value) {
    setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveEverySeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(frame_time.count()));
}

}  // namespace

PeerConnection::PeerConnection(PeerId id, tcp::socket socket, const PeerShared& shared)
    : id_(id), socket_(std::move(socket)), shared_(shared) {}

template <typename Then>
auto PeerConnection::Mine(Then then) {
  return [self = shared_from_this(), then = std::move(then)](const Error& error, auto... more) {
    if (self->stage_ != Stage::kClosed) then(*self, error, more...);
  };
}

template <typename Then>
void PeerConnection::ReadAll(std::span<std::byte> bytes, Then then) {
  asio::async_read(socket_, asio::buffer(bytes.data(), bytes.size()),
                   Mine([then](PeerConnection& self, const Error& error, size_t) {
                     error ? self.ReadFailed(error) : (self.*then)();
                   }));
}

template <typename Then>
void PeerConnection::WriteAll(std::span<const std::byte> bytes, Then then) {
  asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()),
                    Mine([then](PeerConnection& self, const Error& error, size_t) {
                      error ? self.Fail(absl::UnavailableError("the greeting could not be sent: " +
                                                               error.message()))
                            : then(self);
                    }));
}

std::string PeerConnection::Who() const {
  if (own_.from == own_.to) return fmt::format("peer at {}", address_);
  return fmt::format("member {} at {}", own_.to, address_);
}

void PeerConnection::Dial(const tcp::endpoint& to, const PeerToDial& peer) {
  dialled_ = true;
  address_ = TextOf(to);
  key_ = peer.key;
  own_ = {LinkSide::kDials, peer.job,    peer.attempt, peer.group,
          peer.own_member,  peer.member, NewNonce()};
  own_bytes_ = FormatGreeting(own_);
  stage_ = Stage::kConnecting;
  setup_due_ = Clock::now() + shared_.options.connect_time;
  socket_.async_connect(
      to, Mine([](PeerConnection& self, const Error& error) {
        if (!error) return self.Connected();
        self.Fail(absl::UnavailableError("not to be reached: " + error.message()));
      }));
}

void PeerConnection::Connected() {
  stage_ = Stage::kGreeting;
  setup_due_ = Clock::now() + shared_.options.greeting_time;
  SetOptions(socket_, shared_.options.frame_time);
  WriteAll(own_bytes_,
           [](PeerConnection& self) { self.ReadAll(self.received_, &PeerConnection::TakeAnswer); });
}

void PeerConnection::Accept() {
  Error ignored;
  address_ = TextOf(socket_.remote_endpoint(ignored));
  setup_due_ = Clock::now() + shared_.options.greeting_time;
  SetOptions(socket_, shared_.options.frame_time);
  ReadAll(std::span(received_).first<kLinkGreetingBytes>(), &PeerConnection::TakeGreeting);
}

void PeerConnection::SetSecrets(const AttemptKey& key, const LinkGreetingBytes& dialler,
                                const LinkGreetingBytes& accepter) {
  const LinkSecrets secrets = SecretsOf(key, dialler, accepter);
  const auto own = dialled_ ? secrets.key_of_dialler : secrets.key_of_accepter;
  const auto others = dialled_ ? secrets.key_of_accepter : secrets.key_of_dialler;
  sealer_.emplace(own, own_.attempt);
  opener_.emplace(others, own_.attempt);
  expected_ = dialled_ ? secrets.proof_of_accepter : secrets.proof_of_dialler;
  const auto proof = dialled_ ? secrets.proof_of_dialler : secrets.proof_of_accepter;
  std::copy(proof.begin(), proof.end(), sent_.begin() + kLinkGreetingBytes);
}

// Of the side that accepts.
void PeerConnection::TakeGreeting() {
  const auto said = std::span(received_).first<kLinkGreetingBytes>();
  auto greeting = ParseGreeting(said, LinkSide::kDials);
  if (!greeting.ok()) return Fail(greeting.status());
  const auto key = shared_.events.KeyOf(*greeting);
  if (stage_ == Stage::kClosed) return;
  if (!key.ok()) return Fail(key.status());
  peer_ = *greeting;
  own_ = greeting->Answer(NewNonce());
  own_bytes_ = FormatGreeting(own_);
  LinkGreetingBytes dialler;
  std::copy(said.begin(), said.end(), dialler.begin());
  SetSecrets(*key, dialler, own_bytes_);
  std::copy(own_bytes_.begin(), own_bytes_.end(), sent_.begin());
  WriteAll(sent_, [](PeerConnection& self) {
    self.ReadAll(std::span(self.received_).last<kLinkProofBytes>(), &PeerConnection::TakeProof);
  });
}

// Of the side that has dialled: greeting and proof.
void PeerConnection::TakeAnswer() {
  const auto said = std::span(received_).first<kLinkGreetingBytes>();
  auto greeting = ParseGreeting(said, LinkSide::kAccepts);
  if (!greeting.ok()) return Fail(greeting.status());
  if (*greeting != own_.Answer(greeting->nonce)) {
    return Fail(absl::FailedPreconditionError(
        fmt::format("its greeting is of job {}, attempt {}, group {}, from member {} to {}; "
                    "expected {}, {}, {}, {} to {}",
                    greeting->job, greeting->attempt, greeting->group, greeting->from, greeting->to,
                    own_.job, own_.attempt, own_.group, own_.to, own_.from)));
  }
  peer_ = *greeting;
  LinkGreetingBytes accepter;
  std::copy(said.begin(), said.end(), accepter.begin());
  SetSecrets(key_, own_bytes_, accepter);
  LinkProof proof;
  std::copy_n(received_.begin() + kLinkGreetingBytes, proof.size(), proof.begin());
  if (!SameProof(proof, expected_)) {
    return Fail(absl::UnauthenticatedError("it does not prove that it knows the attempt's key"));
  }
  WriteAll(std::span(sent_).last<kLinkProofBytes>(), [](PeerConnection& self) { self.BeUp(); });
}

void PeerConnection::TakeProof() {
  LinkProof proof;
  std::copy_n(received_.begin() + kLinkGreetingBytes, proof.size(), proof.begin());
  if (!SameProof(proof, expected_)) {
    return Fail(absl::UnauthenticatedError("it does not prove that it knows the attempt's key"));
  }
  BeUp();
}

void PeerConnection::BeUp() {
  stage_ = Stage::kUp;
  was_up_ = true;
  setup_due_.reset();
  key_ = {};
  message_.resize(kMostMessageBytes);
  shared_.events.Up(id_, peer_);
  if (stage_ != Stage::kClosed) ReadSome();
}

void PeerConnection::ReadSome() {
  std::span<std::byte> into;
  if (read_bytes_ < kFrameHeaderBytes) {
    into = std::span(header_bytes_).subspan(read_bytes_);
  } else {
    into = place_.subspan(read_bytes_ - kFrameHeaderBytes);
    into = into.first(std::min(into.size(), kMostReadBytes));
  }
  socket_.async_read_some(asio::buffer(into.data(), into.size()),
                          Mine([](PeerConnection& self, const Error& error, size_t bytes) {
                            error ? self.ReadFailed(error) : self.Took(bytes);
                          }));
}

void PeerConnection::Took(size_t bytes) {
  if (read_bytes_ == 0) read_due_ = Clock::now() + shared_.options.frame_time;
  const bool of_header = read_bytes_ < kFrameHeaderBytes;
  if (!of_header) opener_->Payload(place_.subspan(read_bytes_ - kFrameHeaderBytes, bytes));
  read_bytes_ += bytes;
  absl::Status status;
  if (of_header && read_bytes_ == kFrameHeaderBytes) status = TakeHeader();
  if (status.ok() && stage_ != Stage::kClosed && read_bytes_ >= kFrameHeaderBytes &&
      read_bytes_ == kFrameHeaderBytes + place_.size()) {
    status = TakeFrame();
  }
  if (stage_ == Stage::kClosed) return;
  if (!status.ok()) return Fail(status);
  if (!opener_->said_goodbye()) ReadSome();
}

absl::Status PeerConnection::TakeHeader() {
  ASSIGN_OR_RETURN(header_, opener_->Header(header_bytes_));
  place_ = {};
  if (header_.payload_bytes == 0) return absl::OkStatus();
  if (header_.kind == FrameKind::kMessage) {
    place_ = std::span(message_).first(header_.payload_bytes);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(place_, shared_.events.Place(id_, header_));
  TRIREME_CHECK(place_.size() == header_.payload_bytes);
  return absl::OkStatus();
}

absl::Status PeerConnection::TakeFrame() {
  RETURN_IF_ERROR(opener_->Finish());
  read_bytes_ = 0;
  read_due_.reset();
  if (opener_->said_goodbye()) {
    End();
    CloseIfBothEnded();
    return absl::OkStatus();
  }
  shared_.events.Received(id_, header_, place_);
  return absl::OkStatus();
}

void PeerConnection::ReadFailed(const Error& error) {
  if (stage_ != Stage::kUp) {
    return Fail(absl::UnavailableError(
        fmt::format("it ended the connection while greetings were exchanged ({}): it may be of "
                    "another attempt, key or version",
                    error.message())));
  }
  const std::string where = read_bytes_ == 0
                                ? "between two frames"
                                : fmt::format("within a frame, after {} bytes of it", read_bytes_);
  Fail(absl::UnavailableError(
      fmt::format("the connection ended without a goodbye, {} ({})", where, error.message())));
}

absl::Status PeerConnection::Send(OutgoingFrame frame) {
  if (stage_ != Stage::kUp || ending_) {
    return absl::NotFoundError(fmt::format("{} is not connected, or is ending", Who()));
  }
  if (queue_.size() >= shared_.options.most_queued) {
    return absl::ResourceExhaustedError(
        fmt::format("{} frames wait to be sent to {}", queue_.size(), Who()));
  }
  uint64_t bytes = frame.own.size();
  for (const auto part : frame.borrowed) bytes += part.size();
  frame.header.payload_bytes = static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
  RETURN_IF_ERROR(CheckFrame(frame.header));
  if (frame.header.kind == FrameKind::kGoodbye || (!frame.own.empty() && !frame.borrowed.empty())) {
    return absl::InvalidArgumentError(
        "frame: a goodbye is said by End, and a payload is either the frame's own or borrowed");
  }
  queue_.push_back({std::move(frame), {}});
  Queued& queued = queue_.back();
  queued.parts = std::move(queued.frame.borrowed);
  if (!queued.frame.own.empty()) {
    queued.parts.push_back(std::as_bytes(std::span(queued.frame.own)));
  }
  WriteNext();
  return absl::OkStatus();
}

void PeerConnection::End() {
  if (stage_ != Stage::kUp || ending_) return;
  ending_ = true;
  queue_.push_back({});
  WriteNext();
}

void PeerConnection::WriteNext() {
  if (writing_ || queue_.empty()) return;
  writing_ = true;
  const Queued& next = queue_.front();
  auto sealed = sealer_->Seal(next.frame.header, next.parts);
  TRIREME_CHECK(sealed.ok());  // Send has looked at it
  sealed_ = *sealed;
  unwritten_.clear();
  unwritten_.emplace_back(sealed_.data(), sealed_.size());
  for (const auto part : next.parts) unwritten_.emplace_back(part.data(), part.size());
  first_unwritten_ = 0;
  write_due_ = Clock::now() + shared_.options.frame_time;
  WriteSome();
}

void PeerConnection::WriteSome() {
  socket_.async_write_some(
      std::span<const asio::const_buffer>(unwritten_).subspan(first_unwritten_),
      Mine([](PeerConnection& self, const Error& error, size_t bytes) {
        if (!error) return self.Wrote(bytes);
        self.Fail(absl::UnavailableError("a frame could not be sent: " + error.message()));
      }));
}

void PeerConnection::Wrote(size_t bytes) {
  while (first_unwritten_ < unwritten_.size() && bytes >= unwritten_[first_unwritten_].size()) {
    bytes -= unwritten_[first_unwritten_++].size();
  }
  if (first_unwritten_ == unwritten_.size()) return FrameWritten();
  unwritten_[first_unwritten_] += bytes;
  WriteSome();
}

void PeerConnection::FrameWritten() {
  writing_ = false;
  write_due_.reset();
  const FrameHeader header = queue_.front().frame.header;
  queue_.pop_front();
  if (header.kind == FrameKind::kGoodbye) {
    said_goodbye_ = true;
    goodbye_due_ = Clock::now() + shared_.options.frame_time;
    return CloseIfBothEnded();
  }
  // The next one is under way before the owner thinks about this one.
  WriteNext();
  shared_.events.Sent(id_, header);
}

void PeerConnection::CloseIfBothEnded() {
  if (!said_goodbye_ || !opener_->said_goodbye()) return;
  Error ignored;
  // What was sent arrives: unlike in CloseSocket, nothing that the peer has sent is unread.
  socket_.close(ignored);
  stage_ = Stage::kClosed;
  shared_.closed(*this, absl::OkStatus());
}

void PeerConnection::CheckDeadlines(Clock::time_point now) {
  const auto passed = [now](const Due& due) { return due && *due <= now; };
  const auto late = [this](const char* what, std::chrono::milliseconds time) {
    Fail(absl::DeadlineExceededError(fmt::format("{} within {} ms", what, time.count())));
  };
  const PeerLinkOptions& options = shared_.options;
  if (passed(setup_due_)) {
    return stage_ == Stage::kConnecting
               ? late("not connected", options.connect_time)
               : late("greetings were not exchanged", options.greeting_time);
  }
  if (passed(read_due_))
    return late("a frame that has begun did not come whole", options.frame_time);
  if (passed(write_due_)) return late("it has not taken a frame", options.frame_time);
  if (passed(goodbye_due_)) return late("it has not said goodbye", options.frame_time);
}

void PeerConnection::Abort() {
  if (stage_ == Stage::kClosed) return;
  CloseSocket();
}

void PeerConnection::Fail(const absl::Status& why) {
  if (stage_ == Stage::kClosed) return;
  CloseSocket();
  shared_.closed(*this, base::Annotate(why, Who()));
}

// By a reset: after a plain close megabytes that the system holds would still be delivered.
void PeerConnection::CloseSocket() {
  Error ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  socket_.close(ignored);
  stage_ = Stage::kClosed;
}

}  // namespace trireme::checkpoint
