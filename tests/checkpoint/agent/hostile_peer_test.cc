// Peers that lie, trickle, replay, die or do not know the key: each costs its own connection, is
// named, and holds up nobody.
#include <array>
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/checkpoint/agent/test_agent.h"

namespace trireme::checkpoint {
namespace {

using std::chrono::milliseconds;

PeerLinkOptions Impatient() {
  PeerLinkOptions options;
  options.greeting_time = milliseconds(1000);
  options.frame_time = milliseconds(1000);
  return options;
}

bool Tells(const absl::Status& status, absl::StatusCode code, const std::string& words) {
  const std::string message(status.message());
  if (status.code() == code && message.find(words) != std::string::npos) return true;
  UNSCOPED_INFO(status);
  return false;
}

// A changed byte of a sealed frame, or a cut.
void Overwrite(Memory& frame, size_t at, uint32_t value) {
  std::memcpy(frame.data() + at, &value, sizeof value);
}

// Passes bytes on between one that dials it and a port, and keeps them.
class Recorder {
 public:
  explicit Recorder(uint16_t to) : to_(to), listens_(RawSocket::Listening()) {
    thread_ = std::thread([this] {
      const RawSocket dialler = listens_.Accepted();
      const RawSocket accepter = RawSocket::Dialled(to_);
      std::thread back([&] { Pass(accepter, dialler, of_accepter); });
      Pass(dialler, accepter, of_dialler);
      back.join();
    });
  }
  ~Recorder() { Finish(); }
  // Returns when both ends have ended, or have been silent for kPatience.
  void Finish() {
    if (thread_.joinable()) thread_.join();
  }
  std::string address() const { return listens_.address(); }

  // After Finish.
  Memory of_dialler, of_accepter;

 private:
  static void Pass(const RawSocket& from, const RawSocket& to, Memory& kept) {
    for (Memory bytes = from.Receive(1); !bytes.empty(); bytes = from.Receive(1)) {
      kept.push_back(bytes[0]);
      to.Send(bytes);
    }
    shutdown(to.fd(), SHUT_WR);
  }
  uint16_t to_;
  RawSocket listens_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("hostile peer: who has another key is refused, whoever dials") {
  TestAgent agent, stranger({}, 2);
  REQUIRE(stranger.Dial(agent.address()).ok());
  CHECK(Tells(stranger.FirstDown(), absl::StatusCode::kUnauthenticated,
              "member 0 at " + agent.address() + ": it does not prove"));
  CHECK(Tells(agent.FirstRefused(), absl::StatusCode::kUnavailable, "while greetings"));
  // One that goes on all the same.
  RawMember liar(agent.port(), 2);
  CHECK(liar.socket.Ended());
  REQUIRE(agent.Await([&] { return agent.refused.size() == 2; }));
  CHECK(Tells(agent.Seen([&] { return agent.refused.back(); }), absl::StatusCode::kUnauthenticated,
              "it does not prove"));
  CHECK(agent.Seen([&] { return agent.ups.empty(); }));
}

TEST_CASE("hostile peer: a proof that is the other side's own is none") {
  TestAgent agent;
  const RawSocket mirror = RawSocket::Listening();
  REQUIRE(agent.Dial(mirror.address()).ok());
  const RawSocket caller = mirror.Accepted();
  Memory greeting = caller.Receive(kLinkGreetingBytes);
  REQUIRE(greeting.size() == kLinkGreetingBytes);
  // Made to look like one of the other side.
  greeting[12] = std::byte{2};
  std::swap_ranges(greeting.begin() + 36, greeting.begin() + 38, greeting.begin() + 38);
  caller.Send(greeting);
  caller.Send(Memory(kLinkProofBytes));
  CHECK(Tells(agent.FirstDown(), absl::StatusCode::kUnauthenticated, "it does not prove"));
}

TEST_CASE("hostile peer: members, attempts and answers that do not fit are refused") {
  TestAgent agent;
  agent.Seen([&] { return agent.absent.insert(7).second; });
  TestAgent other;
  REQUIRE(other.Dial(agent.address(), 7).ok());
  CHECK(Tells(agent.FirstRefused(), absl::StatusCode::kNotFound, "no such member"));
  CHECK(Tells(other.FirstDown(), absl::StatusCode::kUnavailable, "while greetings"));
  const RawSocket listens = RawSocket::Listening();
  REQUIRE(agent.Dial(listens.address()).ok());
  const RawSocket caller = listens.Accepted();
  Memory greeting = caller.Receive(kLinkGreetingBytes);
  REQUIRE(greeting.size() == kLinkGreetingBytes);
  greeting[12] = std::byte{2};
  greeting[24] = std::byte{6};  // the attempt
  std::swap_ranges(greeting.begin() + 36, greeting.begin() + 38, greeting.begin() + 38);
  caller.Send(greeting);
  caller.Send(Memory(kLinkProofBytes));
  CHECK(Tells(agent.FirstDown(), absl::StatusCode::kFailedPrecondition, "attempt 6"));
}

TEST_CASE("hostile peer: one that lies about a length is reset before memory is asked for") {
  for (const uint32_t length : {(1U << 20) + 1, 1U << 31, ~0U, 0U}) {
    INFO(length);
    TestAgent agent;
    RawMember liar(agent.port());
    Memory frame = liar.Sealed(PieceHeader(100), Pattern(100, 1));
    Overwrite(frame, 44, length);
    liar.socket.Send(frame);
    CHECK(Tells(agent.FirstDown(), absl::StatusCode::kInvalidArgument, "payload"));
    CHECK(agent.Seen([&] { return agent.places == 0 && agent.frames.empty(); }));
    CHECK(liar.socket.Ended());
  }
  TestAgent agent;
  RawMember liar(agent.port());
  Memory frame = liar.Sealed({FrameKind::kMessage, 0, 0, 9, 0, 0, 65536}, Pattern(65536, 1));
  Overwrite(frame, 44, 65537);
  liar.socket.Send(frame);
  CHECK(Tells(agent.FirstDown(), absl::StatusCode::kInvalidArgument, "65537 bytes"));
}

TEST_CASE("hostile peer: a byte changed on the way ends the connection, and nothing counts of it") {
  for (const size_t at : {size_t{24}, size_t{50}, size_t{64}, size_t{64 + 299999}}) {
    INFO("byte " << at);
    TestAgent agent;
    RawMember member(agent.port());
    member.socket.Send(member.Sealed(PieceHeader(300000), Pattern(300000, 1)));
    Memory frame = member.Sealed(PieceHeader(300000), Pattern(300000, 2));
    frame[at] ^= std::byte{1};
    member.socket.Send(frame);
    CHECK(Tells(agent.FirstDown(), absl::StatusCode::kDataLoss, "the tag of number 1 ('piece')"));
    const PeerId peer = agent.Peer();
    CHECK(agent.Seen([&] { return agent.frames[peer].size() == 1 && agent.places == 2; }));
  }
}

TEST_CASE("hostile peer: a frame that does not fit its round ends the connection") {
  TestAgent agent;
  agent.Seen([&] { return agent.takes_no_piece = true; });
  RawMember member(agent.port());
  member.socket.Send(member.Sealed(PieceHeader(1000), Pattern(1000, 1)));
  CHECK(Tells(agent.FirstDown(), absl::StatusCode::kFailedPrecondition, "no round is under way"));
}

TEST_CASE("hostile peer: one that is slow reaches its deadline and holds up no other") {
  TestAgent agent(Impatient());
  // Half a frame; a header that comes byte by byte; nothing at all; one that takes nothing.
  RawMember halves(agent.port());
  REQUIRE(agent.AwaitUp());
  const PeerId slow = agent.Peer();
  const Memory frame = halves.Sealed(PieceHeader(1 << 20), Pattern(1 << 20, 1));
  halves.socket.Send(std::span(frame).first(frame.size() / 2));
  const RawSocket silent = RawSocket::Dialled(agent.port());
  RawMember takes_nothing(agent.port());
  REQUIRE(agent.Await([&] { return agent.ups.size() == 2; }));
  const PeerId full = agent.Seen([&] { return agent.ups.back(); });
  const Memory memory = Pattern(1 << 20, 4);
  while (agent.Send(full, {PieceHeader(1 << 20), "", {std::span(memory)}}).ok()) {
  }
  // All the while another one is served.
  TestAgent healthy;
  const PeerId peer = *healthy.Dial(agent.address());
  REQUIRE(healthy.AwaitUp());
  size_t sent = 0;
  const auto ended = [&] { return agent.downs.size() >= 2 && !agent.refused.empty(); };
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!agent.Seen(ended) && std::chrono::steady_clock::now() < give_up) {
    if (healthy.Send(peer, MessageOf("here")).ok()) ++sent;
    std::this_thread::sleep_for(milliseconds(2));
  }
  REQUIRE(agent.Seen(ended));
  for (const auto& [id, why] : agent.Seen([&] { return agent.downs; })) {
    CHECK((id == slow || id == full));
    CHECK(Tells(why, absl::StatusCode::kDeadlineExceeded,
                id == slow ? "did not come whole within 1000 ms" : "has not taken a frame"));
  }
  CHECK(Tells(agent.FirstRefused(), absl::StatusCode::kDeadlineExceeded,
              "greetings were not exchanged within 1000 ms"));
  CHECK(silent.Ended());
  const PeerId from = agent.Seen([&] { return agent.ups.back(); });
  CHECK(agent.Await([&] { return agent.frames[from].size() == sent; }));
}

TEST_CASE("hostile peer: bytes that trickle do not put off a frame's deadline") {
  TestAgent agent(Impatient());
  RawMember member(agent.port());
  REQUIRE(agent.AwaitUp());
  const Memory frame = member.Sealed(PieceHeader(1 << 20), Pattern(1 << 20, 1));
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  size_t at = 0;
  while (agent.Seen([&] { return agent.downs.empty(); }) && at < frame.size() &&
         std::chrono::steady_clock::now() < give_up) {
    member.socket.Send(std::span(frame).subspan(at++, 1));
    std::this_thread::sleep_for(milliseconds(10));
  }
  // While they came.
  REQUIRE_FALSE(agent.Seen([&] { return agent.downs.empty(); }));
  CHECK(Tells(agent.FirstDown(), absl::StatusCode::kDeadlineExceeded, "did not come whole"));
}

TEST_CASE("hostile peer: one that hears a goodbye and says none is not waited for") {
  TestAgent agent(Impatient());
  RawMember member(agent.port());
  const PeerId peer = agent.Peer();
  agent.End(peer);
  CHECK(agent.Send(peer, MessageOf("late")).code() == absl::StatusCode::kNotFound);
  CHECK(member.socket.Receive(kFrameHeaderBytes).size() == kFrameHeaderBytes);
  CHECK(Tells(agent.FirstDown(), absl::StatusCode::kDeadlineExceeded, "has not said goodbye"));
}

TEST_CASE("hostile peer: one that dies within a frame or between two is told from a goodbye") {
  for (const size_t cut :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{5000}}) {
    INFO("after " << cut << " bytes");
    TestAgent agent;
    RawMember member(agent.port());
    REQUIRE(agent.AwaitUp());
    const Memory frame = member.Sealed(PieceHeader(10000), Pattern(10000, 1));
    member.socket.Send(std::span(frame).first(cut));
    member.socket.Close();
    const std::string where =
        cut == 0 ? "between two frames" : std::to_string(cut) + " bytes of it";
    CHECK(Tells(agent.FirstDown(), absl::StatusCode::kUnavailable, where));
    CHECK(agent.Seen([&] { return agent.frames.empty(); }));
  }
  TestAgent agent;
  RawMember member(agent.port());
  member.socket.Send(member.Sealed({FrameKind::kGoodbye}, {}));
  CHECK(agent.FirstDown().ok());
  CHECK(member.socket.Ended(true));
}

TEST_CASE("hostile peer: what was recorded of a connection is worth nothing in another") {
  TestAgent agent, other;
  Recorder recorder(other.port());
  const PeerId peer = *agent.Dial(recorder.address());
  REQUIRE(agent.AwaitUp());
  const PeerId back = other.Peer();
  REQUIRE(agent.Send(peer, MessageOf("pay once")).ok());
  REQUIRE(other.Send(back, MessageOf("paid")).ok());
  REQUIRE(other.Await([&] { return other.frames[back].size() == 1; }));
  REQUIRE(agent.Await([&] { return agent.frames[peer].size() == 1; }));
  agent.End(peer);
  CHECK(agent.FirstDown().ok());
  CHECK(other.FirstDown().ok());
  recorder.Finish();
  REQUIRE(recorder.of_dialler.size() > kLinkGreetingBytes + kLinkProofBytes);
  // To the one that accepted, all at once and as if it were being answered.
  const RawSocket dials = RawSocket::Dialled(other.port());
  dials.Send(recorder.of_dialler);
  CHECK(Tells(other.FirstRefused(), absl::StatusCode::kUnauthenticated, "it does not prove"));
  CHECK(other.Seen([&] { return other.ups.size() == 1 && other.frames[back].size() == 1; }));
  // To the one that dialled.
  const RawSocket listens = RawSocket::Listening();
  REQUIRE(agent.Dial(listens.address()).ok());
  const RawSocket accepted = listens.Accepted();
  accepted.Send(recorder.of_accepter);
  REQUIRE(agent.Await([&] { return agent.downs.size() == 2; }));
  CHECK(Tells(agent.Seen([&] { return agent.downs.back().second; }),
              absl::StatusCode::kUnauthenticated, "it does not prove"));
  CHECK(agent.Seen([&] { return agent.ups.size(); }) == 1);
  // Within a connection, a frame that was taken once.
  RawMember member(other.port());
  const Memory once = member.Sealed(PieceHeader(10), Pattern(10, 1));
  member.socket.Send(once);
  member.socket.Send(once);
  REQUIRE(other.Await([&] { return other.downs.size() == 2; }));
  CHECK(Tells(other.Seen([&] { return other.downs.back().second; }), absl::StatusCode::kDataLoss,
              "number 0 came where 1 is due"));
}

TEST_CASE("hostile peer: strangers that say nothing keep no peer out, and peers are bounded") {
  PeerLinkOptions options;
  options.most_connections = 3;
  TestAgent agent(options);
  std::vector<RawSocket> strangers;
  for (int i = 0; i < 5; ++i) strangers.push_back(RawSocket::Dialled(agent.port()));
  std::vector<std::unique_ptr<RawMember>> members;
  for (size_t i = 1; i <= 3; ++i) {
    members.push_back(std::make_unique<RawMember>(agent.port()));
    REQUIRE(agent.Await([&] { return agent.ups.size() == i; }));
  }
  for (const RawSocket& each : strangers) CHECK(each.Ended());
  // All are peers now.
  const RawMember fourth(agent.port());
  CHECK_FALSE(fourth.sealer.has_value());
  CHECK(agent.Dial("127.0.0.1:9").status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(agent.Seen([&] { return agent.downs.empty(); }));
}

}  // namespace trireme::checkpoint
