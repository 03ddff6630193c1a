// One connection: greeting, frames in both directions at once, goodbye. Internal to the room.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/agent/peer_link.h"

namespace trireme::checkpoint {

class PeerConnection;

// What connections share. `closed` forgets the connection and tells the owner; once for each.
struct PeerShared {
  PeerLinkOptions options;
  PeerEvents& events;
  std::function<void(PeerConnection&, const absl::Status&)> closed;
};

// The link's thread. Held by what it waits for, and by the link.
class PeerConnection : public std::enable_shared_from_this<PeerConnection> {
 public:
  using Clock = std::chrono::steady_clock;

  PeerConnection(PeerId id, boost::asio::ip::tcp::socket socket, const PeerShared& shared);

  PeerId id() const { return id_; }
  // Both sides have proved the key, however long ago.
  bool was_up() const { return was_up_; }
  bool dialled() const { return dialled_; }
  // "10.0.0.2:41027"; of one that was accepted, the peer's.
  const std::string& address() const { return address_; }

  // One of both, first.
  void Dial(const boost::asio::ip::tcp::endpoint& to, const PeerToDial& peer);
  void Accept();

  // Those of PeerLink. After Abort nothing is called any more, `closed` neither.
  absl::Status Send(OutgoingFrame frame);
  void End();
  void Abort();
  // Ends it if it has let a deadline pass.
  void CheckDeadlines(Clock::time_point now);

 private:
  using Error = boost::system::error_code;
  enum class Stage { kConnecting, kGreeting, kUp, kClosed };
  // A deadline, or none.
  using Due = std::optional<Clock::time_point>;
  struct Queued {
    OutgoingFrame frame;
    std::vector<std::span<const std::byte>> parts;
  };

  void Connected();
  void SendGreeting();
  void TakeGreeting();
  void TakeAnswer();
  void TakeProof();
  void SetSecrets(const AttemptKey& key, const LinkGreetingBytes& dialler,
                  const LinkGreetingBytes& accepter);
  void BeUp();

  void ReadSome();
  void Took(size_t bytes);
  absl::Status TakeHeader();
  absl::Status TakeFrame();
  void TakeGoodbye();
  void ReadFailed(const Error& error);

  void WriteNext();
  void WriteSome();
  void Wrote(size_t bytes);
  void FrameWritten();
  void CloseIfBothEnded();

  void Fail(const absl::Status& why);
  void CloseSocket();
  // `then` with this connection while it is not closed, which lives until then.
  template <typename Then>
  auto Mine(Then then);
  // All of `bytes`, which are this connection's, then `then`.
  template <typename Then>
  void ReadAll(std::span<std::byte> bytes, Then then);
  template <typename Then>
  void WriteAll(std::span<const std::byte> bytes, Then then);
  std::string Who() const;

  const PeerId id_;
  boost::asio::ip::tcp::socket socket_;
  const PeerShared& shared_;
  std::string address_;
  bool dialled_ = false, was_up_ = false;
  Stage stage_ = Stage::kGreeting;
  Due setup_due_, read_due_, write_due_, goodbye_due_;

  // Of the greeting.
  AttemptKey key_{};
  LinkGreeting own_, peer_;
  LinkGreetingBytes own_bytes_{};
  std::array<std::byte, kLinkGreetingBytes + kLinkProofBytes> sent_{}, received_{};
  LinkProof expected_{};

  // Of the frame that is being read.
  std::optional<FrameOpener> opener_;
  FrameHeaderBytes header_bytes_{};
  FrameHeader header_;
  size_t read_bytes_ = 0;  // of header and payload
  std::span<std::byte> place_;
  std::vector<std::byte> message_;

  // Of those that are sent.
  std::optional<FrameSealer> sealer_;
  std::deque<Queued> queue_;
  bool writing_ = false;
  FrameHeaderBytes sealed_{};
  std::vector<boost::asio::const_buffer> unwritten_;
  size_t first_unwritten_ = 0;
  bool ending_ = false;        // a goodbye is queued
  bool said_goodbye_ = false;  // and written
};

}  // namespace trireme::checkpoint
