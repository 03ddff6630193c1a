// Agents that do as they should: frames both ways, bounds of queues, goodbyes, ends.
#include "checkpoint/agent/peer_link.h"

#include <array>
#include <catch2/catch.hpp>

#include "tests/checkpoint/agent/test_agent.h"

namespace trireme::checkpoint {
namespace {

using std::chrono::milliseconds;

// A frame of each kind, of sizes around what a read or a write takes at once, from `memory`.
std::vector<OutgoingFrame> VariousFrames(std::span<const std::byte> memory) {
  std::vector<OutgoingFrame> frames;
  for (const uint32_t size : {1U, 63U, 65536U, 262144U, 262145U, 1048576U}) {
    const auto piece = memory.subspan(size % 1000, size);
    OutgoingFrame frame{PieceHeader(size, size), "", {}};
    frame.borrowed = {piece.first(size / 3), piece.subspan(size / 3, size / 2),
                      piece.subspan(size / 3 + size / 2)};
    frames.push_back(frame);
    frames.push_back(MessageOf(std::string(std::min(size, 65536U), 'm')));
  }
  frames.push_back({{FrameKind::kSame, 4, 1, 9, 1 << 20, 1 << 20, 0}, "", {}});
  frames.push_back({{FrameKind::kRequest, 4, 1, 9, 1 << 20, 1 << 20, 0}, "", {}});
  frames.push_back({{FrameKind::kAnswer, 4, 1, 9, 1 << 20, 1 << 20, 0}, "", {}});
  frames.push_back({{FrameKind::kSmallThing, 4, 3, 9, FrameHeader::SmallOffset(2, 0), 9000, 0},
                    std::string(5000, 's'),
                    {}});
  return frames;
}

Memory PayloadOf(const OutgoingFrame& frame) {
  Memory bytes;
  for (const auto part : frame.borrowed) bytes.insert(bytes.end(), part.begin(), part.end());
  for (const char c : frame.own) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

void CheckReceived(TestAgent& agent, PeerId from, const std::vector<OutgoingFrame>& expected) {
  const auto got = agent.Seen([&] { return agent.frames[from]; });
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Memory payload = PayloadOf(expected[i]);
    FrameHeader header = expected[i].header;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    if (got[i].header != header || got[i].payload != payload) FAIL("frame " << i);
  }
}

}  // namespace

TEST_CASE("peer link: frames of each kind go both ways at once and arrive as they were sent") {
  const Memory memory = Pattern(2 << 20, 3);
  TestAgent one, other;
  const auto dialled = one.Dial(other.address());
  REQUIRE(dialled.ok());
  REQUIRE(one.AwaitUp());
  REQUIRE(other.AwaitUp());
  const PeerId to_other = *dialled, to_one = other.Peer();
  CHECK(one.Peer() == to_other);
  std::vector<OutgoingFrame> all;
  for (int round = 0; round < 3; ++round) {
    for (const OutgoingFrame& frame : VariousFrames(memory)) {
      all.push_back(frame);
      REQUIRE(one.Send(to_other, frame).ok());
      REQUIRE(other.Send(to_one, frame).ok());
    }
  }
  REQUIRE(one.Await([&] { return one.frames[to_other].size() == all.size(); }));
  REQUIRE(other.Await([&] { return other.frames[to_one].size() == all.size(); }));
  CheckReceived(one, to_other, all);
  CheckReceived(other, to_one, all);
  REQUIRE(one.Await([&] { return one.sent[to_other] == all.size(); }));
  one.End(to_other);
  CHECK(one.FirstDown().ok());
  CHECK(other.FirstDown().ok());
  CHECK(one.Send(to_other, MessageOf("x")).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("peer link: what is queued before a goodbye arrives, on both sides") {
  const Memory memory = Pattern(1 << 20, 5);
  TestAgent one, other;
  const PeerId to_other = *one.Dial(other.address());
  REQUIRE(one.AwaitUp());
  const PeerId to_one = other.Peer();
  const OutgoingFrame piece{PieceHeader(1 << 20), "", {std::span(memory)}};
  for (int i = 0; i < 20; ++i) {
    REQUIRE(one.Send(to_other, piece).ok());
    REQUIRE(other.Send(to_one, piece).ok());
  }
  one.End(to_other);
  other.End(to_one);
  CHECK(one.FirstDown().ok());
  CHECK(other.FirstDown().ok());
  CheckReceived(one, to_other, std::vector(20, piece));
  CheckReceived(other, to_one, std::vector(20, piece));
}

TEST_CASE(
    "peer link: a frame that cannot be is refused where it is sent, and costs no connection") {
  TestAgent one, other;
  const PeerId peer = *one.Dial(other.address());
  REQUIRE(one.AwaitUp());
  const auto refused = [&](const OutgoingFrame& frame) {
    return one.Send(peer, frame).code() == absl::StatusCode::kInvalidArgument;
  };
  CHECK(refused(MessageOf("")));
  CHECK(refused(MessageOf(std::string(65537, 'x'))));
  CHECK(refused({{FrameKind::kGoodbye}, "", {}}));
  CHECK(refused({PieceHeader(4), "abc", {}}));
  const Memory memory(2);
  CHECK(refused({PieceHeader(4), "ab", {std::span(memory)}}));
  REQUIRE(one.Send(peer, MessageOf("still here")).ok());
  const PeerId from = other.Peer();
  CHECK(other.Await([&] { return other.frames[from].size() == 1; }));
}

TEST_CASE("peer link: so many frames wait to be sent, and no more") {
  PeerLinkOptions options;
  options.most_queued = 5;
  TestAgent agent(options);
  const Memory memory = Pattern(1 << 20, 1);
  RawMember reads_nothing(agent.port());
  const PeerId peer = agent.Peer();
  const OutgoingFrame piece{PieceHeader(1 << 20), "", {std::span(memory)}};
  // The system takes some at once, and then one is being written for good.
  size_t taken = 0, refused = 0;
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (refused < 100 && std::chrono::steady_clock::now() < give_up) {
    const absl::Status status = agent.Send(peer, piece);
    if (status.ok()) {
      ++taken;
      refused = 0;
      continue;
    }
    REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
    ++refused;
    std::this_thread::sleep_for(milliseconds(1));
  }
  CHECK(refused == 100);
  CHECK(agent.Seen([&] { return taken - agent.sent[peer]; }) == 5);
  // Who reads gets all of it.
  const size_t bytes = taken * (kFrameHeaderBytes + memory.size());
  CHECK(reads_nothing.socket.Receive(bytes).size() == bytes);
  CHECK(agent.Await([&] { return agent.sent[peer] == taken; }));
  CHECK(agent.Send(peer, piece).ok());
}

TEST_CASE("peer link: one that is aborted is reset, and nothing is told of it any more") {
  TestAgent agent;
  Memory memory = Pattern(1 << 20, 1);
  RawMember fenced(agent.port());
  const PeerId peer = agent.Peer();
  const OutgoingFrame piece{PieceHeader(1 << 20), "", {std::span(memory)}};
  for (int i = 0; i < 20; ++i) REQUIRE(agent.Send(peer, piece).ok());
  agent.Abort(peer);
  std::fill(memory.begin(), memory.end(), std::byte{0});  // the link has no business there
  CHECK(fenced.socket.Ended());
  CHECK(agent.Send(peer, piece).code() == absl::StatusCode::kNotFound);
  RawMember next(agent.port());
  REQUIRE(agent.Await([&] { return agent.ups.size() == 2; }));
  CHECK(agent.Seen([&] { return agent.downs.empty(); }));
}

TEST_CASE("peer link: a port in use is named, and an address that is none") {
  TestAgent agent;
  PeerLinkOptions options;
  options.address = agent.address();
  const auto second = PeerLink::Start(options, agent);
  CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(second.status().message() == "cannot listen for other agents at " + agent.address() +
                                         ": Address already in use; give this agent another port");
  for (const char* address :
       {"", "7411", "somehost:7411", "127.0.0.1:", "127.0.0.1:65536", "::1"}) {
    options.address = address;
    INFO(address);
    CHECK(PeerLink::Start(options, agent).status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(agent.Dial(address).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(agent.Dial("127.0.0.1:0").ok());
  CHECK_FALSE(agent.Dial("127.0.0.1:7411", 4, 4).ok());
}

TEST_CASE("peer link: who cannot be reached is told, refused or silent") {
  PeerLinkOptions options;
  options.connect_time = milliseconds(300);
  TestAgent agent(options);
  RawSocket listens = RawSocket::Listening(0);
  const std::string address = listens.address();
  // They fill what the system takes in for a listener that accepts nobody.
  std::vector<int> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(listens.port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(waiting.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  REQUIRE(agent.Dial(address).ok());
  const absl::Status silent = agent.FirstDown();
  CHECK(silent.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(silent.message() == "member 0 at " + address + ": not connected within 300 ms");
  for (const int fd : waiting) close(fd);
  listens.Close();
  REQUIRE(agent.Dial(address).ok());
  REQUIRE(agent.Await([&] { return agent.downs.size() == 2; }));
  const absl::Status refused = agent.Seen([&] { return agent.downs.back().second; });
  CHECK(refused.code() == absl::StatusCode::kUnavailable);
  CHECK(refused.message() == "member 0 at " + address + ": not to be reached: Connection refused");
}

}  // namespace trireme::checkpoint
