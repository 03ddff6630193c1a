// Pieces of 1 MiB between two agents over loopback, by frames and by plain send and recv, in turns:
// bytes per second, and processor time. Both read from and write to memory beyond the caches.
// Usage: bench_frames [ROUNDS [MIB]]
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/agent/peer_link.h"
#include "runtime/base/check.h"

namespace trireme::checkpoint {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr size_t kMemoryPieces = 256;

struct Cost {
  double gb_per_second = 0;
  double cpu_seconds_per_gib = 0;
};

double CpuSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// What `transfer` of so many pieces takes.
template <typename Transfer>
Cost Measured(size_t pieces, Transfer transfer) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu = CpuSeconds();
  transfer();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  const auto bytes = static_cast<double>(pieces * kPiece);
  return {bytes / wall.count() * 1e-9, (CpuSeconds() - cpu) / bytes * (1 << 30)};
}

struct Memories {
  std::vector<std::byte> from = std::vector<std::byte>(kMemoryPieces * kPiece, std::byte{7});
  std::vector<std::byte> to = std::vector<std::byte>(kMemoryPieces * kPiece, std::byte{1});
  std::span<std::byte> From(size_t i) {
    return std::span(from).subspan(i % kMemoryPieces * kPiece, kPiece);
  }
  std::span<std::byte> To(size_t i) {
    return std::span(to).subspan(i % kMemoryPieces * kPiece, kPiece);
  }
};

// Two ends of a connection over loopback.
std::pair<int, int> Connected() {
  const int listens = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  TRIREME_CHECK(bind(listens, reinterpret_cast<sockaddr*>(&at), size) == 0);
  TRIREME_CHECK(listen(listens, 1) == 0);
  TRIREME_CHECK(getsockname(listens, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  const int dials = socket(AF_INET, SOCK_STREAM, 0);
  TRIREME_CHECK(connect(dials, reinterpret_cast<sockaddr*>(&at), size) == 0);
  const int accepted = accept(listens, nullptr, nullptr);
  TRIREME_CHECK(accepted >= 0);
  close(listens);
  return {dials, accepted};
}

Cost Raw(size_t pieces, Memories& memories) {
  const auto [out, in] = Connected();
  const Cost cost = Measured(pieces, [&, out = out, in = in] {
    std::thread sender([&, out] {
      for (size_t i = 0; i < pieces; ++i) {
        for (auto left = memories.From(i); !left.empty();) {
          const ssize_t count = send(out, left.data(), left.size(), MSG_NOSIGNAL);
          TRIREME_CHECK(count > 0);
          left = left.subspan(static_cast<size_t>(count));
        }
      }
    });
    for (size_t i = 0; i < pieces; ++i) {
      for (auto left = memories.To(i); !left.empty();) {
        const ssize_t count = recv(in, left.data(), left.size(), 0);
        TRIREME_CHECK(count > 0);
        left = left.subspan(static_cast<size_t>(count));
      }
    }
    sender.join();
  });
  close(out);
  close(in);
  return cost;
}

// Sends or receives all pieces over one connection.
class End : public PeerEvents {
 public:
  End(size_t pieces, Memories& memories) : pieces_(pieces), memories_(memories) {
    PeerLinkOptions options;
    options.address = "127.0.0.1:0";
    options.most_queued = 4;
    link = *PeerLink::Start(options, *this);
  }
  absl::StatusOr<AttemptKey> KeyOf(const LinkGreeting&) override { return AttemptKey{}; }
  void Up(PeerId peer, const LinkGreeting&) override {
    peer_ = peer;
    up = true;
  }
  absl::StatusOr<std::span<std::byte>> Place(PeerId, const FrameHeader&) override {
    return memories_.To(received_);
  }
  void Received(PeerId, const FrameHeader&, std::span<const std::byte>) override {
    if (++received_ == pieces_) done = true;
  }
  void Sent(PeerId, const FrameHeader&) override { SendMore(); }
  void Down(PeerId, const absl::Status& why) override { TRIREME_CHECK(why.ok() || done); }
  void Refused(const std::string&, const absl::Status&) override { TRIREME_CHECK(false); }
  void SendMore() {
    while (sent_ < pieces_) {
      OutgoingFrame piece{{FrameKind::kPiece, 1, 0, 1, sent_ * kPiece, kPiece, 0}, "", {}};
      piece.borrowed.push_back(memories_.From(sent_));
      if (!link->Send(peer_, std::move(piece)).ok()) return;
      ++sent_;
    }
  }

  std::unique_ptr<PeerLink> link;
  std::atomic<bool> up = false, done = false;

 private:
  const size_t pieces_;
  Memories& memories_;
  PeerId peer_{};
  size_t sent_ = 0, received_ = 0;
};

void Serve(End& end, const std::atomic<bool>& until) {
  while (!until) end.link->RunFor(std::chrono::milliseconds(1));
}

Cost Frames(size_t pieces, Memories& memories) {
  End out(pieces, memories), in(pieces, memories);
  TRIREME_CHECK(
      out.link->Dial({"127.0.0.1:" + std::to_string(in.link->port()), 1, 1, 1, 1, 0, AttemptKey{}})
          .ok());
  while (!out.up || !in.up) {
    out.link->RunFor(std::chrono::milliseconds(0));
    in.link->RunFor(std::chrono::milliseconds(0));
  }
  return Measured(pieces, [&] {
    std::thread sender([&] {
      out.SendMore();
      Serve(out, in.done);
    });
    Serve(in, in.done);
    sender.join();
  });
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const size_t pieces = argc > 2 ? static_cast<size_t>(std::max(1, std::atoi(argv[2]))) : 2048;
  Memories memories;
  std::vector<double> raw, frames, ratios, raw_cpu, frames_cpu;
  for (int round = 0; round < rounds; ++round) {
    const Cost plain = Raw(pieces, memories);
    const Cost framed = Frames(pieces, memories);
    raw.push_back(plain.gb_per_second);
    frames.push_back(framed.gb_per_second);
    ratios.push_back(framed.gb_per_second / plain.gb_per_second);
    raw_cpu.push_back(plain.cpu_seconds_per_gib);
    frames_cpu.push_back(framed.cpu_seconds_per_gib);
    fmt::print("raw {:.2f} GB/s, frames {:.2f} GB/s, ratio {:.2f}\n", raw.back(), frames.back(),
               ratios.back());
  }
  fmt::print(
      "{{\"raw_gb_s\": {:.2f}, \"frames_gb_s\": {:.2f}, \"ratio\": {:.3f}, "
      "\"best_raw_gb_s\": {:.2f}, \"best_frames_gb_s\": {:.2f}, "
      "\"raw_cpu_s_per_gib\": {:.2f}, \"frames_cpu_s_per_gib\": {:.2f}}}\n",
      Median(raw), Median(frames), Median(ratios), *std::max_element(raw.begin(), raw.end()),
      *std::max_element(frames.begin(), frames.end()), Median(raw_cpu), Median(frames_cpu));
  return 0;
}

}  // namespace
}  // namespace trireme::checkpoint

int main(int argc, char** argv) { return trireme::checkpoint::Main(argc, argv); }
