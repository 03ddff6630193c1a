// Connections between the agents of an attempt's nodes, by frames (docs/formats/frames.md), over
// TCP. Payloads are sent from where they lie and received where they belong. Every wait for a peer
// has a deadline, every queue a bound: a peer that is slow, lies or dies costs its own connection.
//
// One thread, that of the owner: it calls RunFor, from which all events come, and everything else
// but Post. Nothing blocks but RunFor.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/frame.h"
#include "checkpoint/format/link_greeting.h"

namespace trireme::checkpoint {

// Of one connection; never given again by the same PeerLink.
enum class PeerId : uint64_t {};

struct PeerLinkOptions {
  std::string address = "0.0.0.0:0";  // "IP:PORT", "[IPV6]:PORT"; port 0: any
  size_t most_connections = 64;       // both dialled and accepted
  size_t most_queued = 64;            // frames of a connection, with the one that is being written
  std::chrono::milliseconds connect_time{5000};
  std::chrono::milliseconds greeting_time{5000};  // from connected to proved by both sides
  std::chrono::milliseconds frame_time{10000};    // of a frame, from its first byte to its last
};

// Whom to dial, and as whom.
struct PeerToDial {
  std::string address;  // as above; no name, which would have to be asked for
  uint64_t job = 0, attempt = 0;
  uint32_t group = 0;
  uint16_t own_member = 0, member = 0;
  AttemptKey key{};
};

struct OutgoingFrame {
  FrameHeader header;  // payload_bytes is set by the link
  std::string own;     // the payload, kept by the link; or
  // parts of it where they lie. They must stay, unchanged, until Sent or Down has come for it, or
  // Abort has returned.
  std::vector<std::span<const std::byte>> borrowed;
};

// What the owner is told and asked, on its thread, within RunFor. It may call the link from here.
class PeerEvents {
 public:
  virtual ~PeerEvents() = default;
  // Somebody has dialled and says who he is, which nothing proves yet. The key of that attempt; an
  // error: there is no such member here, and the connection ends.
  virtual absl::StatusOr<AttemptKey> KeyOf(const LinkGreeting& greeting) = 0;
  // Both sides have proved the key. `greeting` is the peer's. An older connection to the same
  // member, which may be dead, is the owner's to abort.
  virtual void Up(PeerId peer, const LinkGreeting& greeting) = 0;
  // Where the payload of a frame that is no message goes: exactly header.payload_bytes. It is
  // written before the header and it are known to be the peer's, so it is to be memory that counts
  // for nothing before Received. An error: the frame does not fit; the connection ends by it.
  virtual absl::StatusOr<std::span<std::byte>> Place(PeerId peer, const FrameHeader& header) = 0;
  // A frame is there whole, and is the peer's. `payload` is what Place gave, or a message, which is
  // gone afterwards. Not called for a goodbye.
  virtual void Received(PeerId peer, const FrameHeader& header,
                        std::span<const std::byte> payload) = 0;
  // The system has all of a frame, in the order of Send. Not: the peer has it.
  virtual void Sent(PeerId peer, const FrameHeader& header) = 0;
  // The connection is no more, Up or not. Ok: both sides have said goodbye. Once for each that was
  // dialled or Up, unless it was aborted.
  virtual void Down(PeerId peer, const absl::Status& why) = 0;
  // One that was accepted has ended before it was Up. For the log.
  virtual void Refused(const std::string& address, const absl::Status& why) = 0;
};

class PeerLink {
 public:
  // Listens when it returns. `events` outlives the link. InvalidArgument: the address;
  // FailedPrecondition: it cannot be listened at, as when another program does.
  static absl::StatusOr<std::unique_ptr<PeerLink>> Start(const PeerLinkOptions& options,
                                                         PeerEvents& events);
  // Not within RunFor. Aborts what is connected; waits for nobody.
  virtual ~PeerLink() = default;

  // The port that is listened at.
  virtual uint16_t port() const = 0;
  // Up or Down will follow. InvalidArgument: the address or the members; ResourceExhausted: so many
  // connections are there.
  virtual absl::StatusOr<PeerId> Dial(const PeerToDial& to) = 0;
  // InvalidArgument: no frame can be so, or it is a goodbye; NotFound: no such connection is up, or
  // it is ending; ResourceExhausted: the queue is full, until Sent.
  virtual absl::Status Send(PeerId to, OutgoingFrame frame) = 0;
  // What is queued is sent, then a goodbye; Down follows when the peer has said goodbye as well, or
  // has not within frame_time. Also when it was the peer that began.
  virtual void End(PeerId peer) = 0;
  // At once and by a reset, so that nothing of what was sent arrives any more that has not. No
  // event follows. For peers that are fenced.
  virtual void Abort(PeerId peer) = 0;

  // Serves all connections for so long, or until Return; at 0 what is due now.
  virtual void RunFor(std::chrono::milliseconds time) = 0;
  // RunFor returns after what it is calling now. To be called from there.
  virtual void Return() = 0;
  // By any thread: `call` is called within RunFor, the present or the next one, in order.
  virtual void Post(std::function<void()> call) = 0;
};

}  // namespace trireme::checkpoint
