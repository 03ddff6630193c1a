// Crowd: very many ranks in one thread. Every rank has the real communicator over a transport that
// matches messages in a table, counts them, and notes how many hops one after another led to each;
// a rank is looked at again when something of its own has come. No clock, no scheduler: the counts
// are the same in every run. A send is done only once it is received.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/message_fabric.h"
#include "runtime/comm/node_memory.h"
#include "runtime/comm/transport.h"
#include "tests/runtime/comm/cases.h"

namespace trireme::comm {

// What all ranks of a crowd share.
struct CrowdOffice {
  struct Node {
    Message message;
    int rank = 0;
    bool done = false;
    int64_t hops = 0;  // of a send: with this one
  };
  struct Queues {
    std::deque<Node*> sends, recvs;
  };

  explicit CrowdOffice(int ranks) : hops(static_cast<size_t>(ranks)), is_awake(hops.size()) {}

  void Awaken(int rank) {
    if (is_awake[static_cast<size_t>(rank)]) return;
    is_awake[static_cast<size_t>(rank)] = true;
    awake.push_back(rank);
  }
  void Post(Node* node) {
    const Message& message = node->message;
    const bool sends = message.direction == Direction::kSend;
    const int from = sends ? node->rank : message.peer, to = sends ? message.peer : node->rank;
    if (sends) {
      ++messages;
      bytes += static_cast<int64_t>(message.bytes);
      highest_channel = std::max(highest_channel, message.channel);
      node->hops = hops[static_cast<size_t>(node->rank)] + 1;
    }
    const uint64_t key = ((static_cast<uint64_t>(from) << 14 | static_cast<uint64_t>(to)) << 28) |
                         (static_cast<uint64_t>(message.group) << 20) | message.channel;
    Queues& queues = waiting[key];
    auto& others = sends ? queues.recvs : queues.sends;
    if (others.empty()) {
      (sends ? queues.sends : queues.recvs).push_back(node);
      return;
    }
    Node* other = others.front();
    others.pop_front();
    if (queues.sends.empty() && queues.recvs.empty()) waiting.erase(key);
    Node& send = sends ? *node : *other;
    Node& recv = sends ? *other : *node;
    TRIREME_CHECK(send.message.bytes == recv.message.bytes);
    std::memcpy(recv.message.data, send.message.data, send.message.bytes);
    send.done = recv.done = true;
    recv.hops = send.hops;
    send.hops = 0;
    Awaken(from);
    Awaken(to);
  }

  std::unordered_map<uint64_t, Queues> waiting;
  std::vector<int64_t> hops;  // by rank: the longest chain of messages that it has seen the end of
  std::deque<int> awake;
  std::vector<bool> is_awake;
  std::unique_ptr<std::byte, decltype(&std::free)> window{nullptr, &std::free};
  size_t window_bytes = 0;
  std::vector<std::vector<std::byte>> parts;  // of the only node memory, by rank
  int64_t messages = 0, bytes = 0;
  uint32_t highest_channel = 0;
};

// Complete once all ranks have allocated.
class CrowdMemory final : public NodeMemory {
 public:
  CrowdMemory(std::shared_ptr<CrowdOffice> office, int rank)
      : office_(std::move(office)), rank_(rank) {}
  std::span<std::byte> own() const override { return office_->parts[static_cast<size_t>(rank_)]; }
  std::byte* Of(int rank) const override {
    return office_->parts[static_cast<size_t>(rank)].data();
  }

 private:
  std::shared_ptr<CrowdOffice> office_;
  const int rank_;
};

class CrowdTransport final : public Transport {
 public:
  CrowdTransport(std::shared_ptr<CrowdOffice> office, int rank, int ranks)
      : office_(std::move(office)), rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int size() const override { return ranks_; }
  absl::StatusOr<TransportGroup> AddGroup(const TransportGroupSpec& spec) override {
    TransportGroup group;
    if (spec.window_bytes == 0) return group;
    constexpr size_t kLine = 64;
    office_->window_bytes = spec.window_bytes;
    // Never written before it is used: most of it is never given.
    if (office_->window == nullptr)
      office_->window.reset(static_cast<std::byte*>(std::calloc(1, spec.window_bytes + kLine)));
    void* memory = office_->window.get();
    size_t room = spec.window_bytes + kLine;
    std::align(kLine, spec.window_bytes, memory, room);
    group.window = {static_cast<std::byte*>(memory), spec.window_bytes};
    return group;
  }
  void RemoveGroup(int) override {}
  absl::StatusOr<std::shared_ptr<NodeMemory>> Allocate(size_t bytes) override {
    office_->parts.resize(static_cast<size_t>(ranks_));
    office_->parts[static_cast<size_t>(rank_)].resize(bytes);
    return std::make_shared<CrowdMemory>(office_, rank_);
  }
  Request Post(const Message& message) override {
    if (free_.empty()) {
      nodes_.emplace_back();
      free_.push_back(static_cast<int32_t>(nodes_.size()) - 1);
    }
    const int32_t index = free_.back();
    free_.pop_back();
    CrowdOffice::Node& node = nodes_[static_cast<size_t>(index)];
    node = {message, rank_, false, 0};
    office_->Post(&node);
    return {index};
  }
  bool Done(Request request) override {
    const CrowdOffice::Node& node = nodes_[static_cast<size_t>(request.index)];
    if (!node.done) return false;
    int64_t& hops = office_->hops[static_cast<size_t>(rank_)];
    hops = std::max(hops, node.hops);
    free_.push_back(request.index);
    return true;
  }
  absl::Status Poll() override { return absl::OkStatus(); }
  size_t max_message_bytes() const override { return size_t{1} << 30; }
  uint64_t Epoch() const override { return 0; }
  void Sleep(uint64_t, int, std::chrono::microseconds) override {}
  void Wake(int rank) override { office_->Awaken(rank); }
  void Abort(const absl::Status&) override {}
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  std::shared_ptr<CrowdOffice> office_;
  const int rank_;
  const int ranks_;
  std::deque<CrowdOffice::Node> nodes_;
  std::vector<int32_t> free_;
};

class Crowd {
 public:
  explicit Crowd(int ranks, FabricOptions options = {})
      : office_(std::make_shared<CrowdOffice>(ranks)), stream_(tensor::MakeInlineStream()) {
    options.operations = 4;
    options.lanes = 1;
    for (int r = 0; r < ranks; ++r) {
      fabrics_.push_back(std::make_unique<MessageFabric>(
          std::make_unique<CrowdTransport>(office_, r, ranks), options));
      auto group = fabrics_.back()->Group(All(ranks), "crowd", {});
      TRIREME_CHECK(group.ok());
      groups_.push_back(*std::move(group));
    }
  }

  // Each rank's part of a node memory.
  std::vector<std::shared_ptr<NodeMemory>> Allocate(size_t bytes) {
    std::vector<std::shared_ptr<NodeMemory>> parts;
    for (auto& fabric : fabrics_) parts.push_back(*fabric->Allocate(bytes));
    return parts;
  }
  int size() const { return static_cast<int>(groups_.size()); }
  const CrowdOffice& office() const { return *office_; }
  int64_t hops() const { return *std::max_element(office_->hops.begin(), office_->hops.end()); }

  // Issues `call` on every rank and moves all until it is done everywhere; says so if it is not.
  absl::Status Run(const std::function<Ticket(Communicator&, tensor::Stream&)>& call) {
    office_->messages = office_->bytes = 0;
    std::fill(office_->hops.begin(), office_->hops.end(), 0);
    std::vector<Ticket> tickets;
    for (auto& group : groups_) tickets.push_back(call(*group, *stream_));
    std::vector<bool> done(groups_.size());
    size_t left = groups_.size();
    while (left > 0) {
      // One turn may leave work to a rank that nobody calls: all are looked at once in vain before
      // this is a standstill.
      if (office_->awake.empty()) {
        const int64_t before = office_->messages;
        const size_t left_before = left;
        for (size_t r = 0; r < groups_.size(); ++r) Look(r, tickets[r], &done, &left);
        if (left > 0 && left == left_before && office_->messages == before &&
            office_->awake.empty()) {
          return absl::InternalError("all ranks wait: " + std::to_string(left) + " are not done");
        }
        continue;
      }
      const int rank = office_->awake.front();
      office_->awake.pop_front();
      office_->is_awake[static_cast<size_t>(rank)] = false;
      Look(static_cast<size_t>(rank), tickets[static_cast<size_t>(rank)], &done, &left);
    }
    for (auto& group : groups_) RETURN_IF_ERROR(group->status());
    return absl::OkStatus();
  }

 private:
  void Look(size_t rank, Ticket ticket, std::vector<bool>* done, size_t* left) {
    if ((*done)[rank] || !groups_[rank]->Test(ticket)) return;
    (*done)[rank] = true;
    --*left;
  }

  std::shared_ptr<CrowdOffice> office_;
  std::unique_ptr<tensor::Stream> stream_;
  std::vector<std::unique_ptr<MessageFabric>> fabrics_;
  std::vector<std::unique_ptr<Communicator>> groups_;
};

}  // namespace trireme::comm
