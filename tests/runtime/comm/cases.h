// The cases that every backend must pass: each collective against a straight sum, and messages in
// order. Header only, so that the program under mpirun runs the very same ones.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/node_memory.h"
#include "runtime/tensor/bf16.h"

namespace trireme::comm {

using std::chrono::milliseconds;
constexpr milliseconds kDeadline{20000};

// Whole numbers for an exact straight sum in any order, and thirds for the identity of bits.
template <typename T>
T Value(int rank, int64_t i) {
  return static_cast<T>((i * 7 + rank * 13) % 101 - 50);
}

inline std::vector<int> All(int n) {
  std::vector<int> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

template <typename T>
constexpr tensor::DType TypeOf();
template <>
constexpr tensor::DType TypeOf<float>() {
  return tensor::DType::kF32;
}
template <>
constexpr tensor::DType TypeOf<double>() {
  return tensor::DType::kF64;
}
template <>
constexpr tensor::DType TypeOf<int32_t>() {
  return tensor::DType::kI32;
}
template <>
constexpr tensor::DType TypeOf<tensor::BFloat16>() {
  return tensor::DType::kBf16;
}

inline absl::Status Expect(bool condition, std::string_view what) {
  return condition ? absl::OkStatus() : absl::InternalError(std::string(what));
}

// What a rank's watcher was told.
class Told final : public WaitWatcher {
 public:
  void WaitsInVain(const VainWait& wait) override {
    wait_ = wait;
    group_ = wait.group;
    peer_ = wait.peer;
    ++times_;
  }
  void WaitIsOver() override { ++over_; }
  VainWait wait_;
  std::string group_;
  std::atomic<int> times_{0}, over_{0}, peer_{-1};
};

// Uneven, with empty shares.
inline std::vector<int64_t> UnevenOffsets(int ranks, int64_t count) {
  std::vector<int64_t> offsets = {3};
  for (int r = 0; r < ranks; ++r)
    offsets.push_back(r % 3 == 1 ? offsets.back()
                                 : 3 + count * (r + 1) * (r + 1) / (ranks * ranks));
  offsets.back() = 3 + count;
  return offsets;
}

template <typename T>
absl::Status CheckAllReduce(Communicator& comm, int64_t count) {
  auto stream = tensor::MakeInlineStream();
  std::vector<T> data(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = Value<T>(comm.rank(), i);
  RETURN_IF_ERROR(comm.WaitHost(
      comm.AllReduce(data.data(), count, TypeOf<T>(), ReduceOp::kSum, *stream), kDeadline));
  for (int64_t i = 0; i < count; ++i) {
    T sum = 0;
    for (int r = 0; r < comm.size(); ++r) sum += Value<T>(r, i);
    RETURN_IF_ERROR(Expect(data[static_cast<size_t>(i)] == sum, "AllReduce sum"));
  }
  for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = Value<T>(comm.rank(), i);
  RETURN_IF_ERROR(comm.WaitHost(
      comm.AllReduce(data.data(), count, TypeOf<T>(), ReduceOp::kMax, *stream), kDeadline));
  for (int64_t i = 0; i < count; ++i) {
    T most = Value<T>(0, i);
    for (int r = 0; r < comm.size(); ++r) most = std::max(most, Value<T>(r, i));
    RETURN_IF_ERROR(Expect(data[static_cast<size_t>(i)] == most, "AllReduce max"));
  }
  return absl::OkStatus();
}

// Numbers with others on both sides, which nobody may write; in `place`, if there is one.
template <typename T>
class Fenced {
 public:
  Fenced(int64_t count, T fill, std::byte* place = nullptr) : count_(count), fill_(fill) {
    own_.resize(place == nullptr ? static_cast<size_t>(count + 2 * kFence) : 0);
    all_ = place == nullptr ? own_.data() : reinterpret_cast<T*>(place);
    std::fill_n(all_, count + 2 * kFence, fill);
  }
  T* data() { return all_ + kFence; }
  int64_t size() const { return count_; }
  bool FencesStand() const {
    return std::count(all_, all_ + kFence, fill_) == kFence &&
           std::count(all_ + kFence + count_, all_ + count_ + 2 * kFence, fill_) == kFence;
  }
  static size_t BytesFor(int64_t count) {
    return (static_cast<size_t>(count) + 2 * kFence) * sizeof(T);
  }

 private:
  static constexpr int64_t kFence = 64;
  int64_t count_;
  T fill_;
  std::vector<T> own_;
  T* all_;
};

// Where a rank's buffers lie: in memory of their own where there is none.
struct Places {
  bool apart = false;  // the own share lies outside the data
  std::byte* data = nullptr;
  std::byte* share = nullptr;
};

// A ReduceScatter, then an AllGather of the sums; `*gathered` gets what that gives.
template <typename T>
absl::Status ScatterAndGather(Communicator& comm, const std::vector<int64_t>& offsets,
                              const Places& places, const std::function<T(int64_t)>& value,
                              std::vector<T>* gathered) {
  const T kFill(77);
  auto stream = tensor::MakeInlineStream();
  const size_t r = static_cast<size_t>(comm.rank());
  const int64_t begin = offsets[r] - offsets[0], own = offsets[r + 1] - offsets[r];
  Fenced<T> data(offsets.back() - offsets[0], kFill, places.data), share(own, kFill, places.share);
  for (int64_t i = 0; i < data.size(); ++i) data.data()[i] = value(i);
  const Sharded sharded{data.data(), offsets, TypeOf<T>(), places.apart ? share.data() : nullptr};
  RETURN_IF_ERROR(comm.WaitHost(comm.ReduceScatter(sharded, *stream), kDeadline));
  if (places.apart) std::fill_n(data.data(), data.size(), kFill);
  RETURN_IF_ERROR(Expect(places.apart || std::count(share.data(), share.data() + own, kFill) == own,
                         "a share in place is written elsewhere"));
  RETURN_IF_ERROR(comm.WaitHost(comm.AllGather(sharded, *stream), kDeadline));
  gathered->assign(data.data(), data.data() + data.size());
  RETURN_IF_ERROR(Expect(
      own == 0 || !places.apart ||
          std::memcmp(share.data(), data.data() + begin, static_cast<size_t>(own) * sizeof(T)) == 0,
      "AllGather: the own share"));
  return Expect(data.FencesStand() && share.FencesStand(), "memory outside was written");
}

template <typename T>
absl::Status CheckSharded(Communicator& comm, int64_t count) {
  const std::vector<int64_t> offsets = UnevenOffsets(comm.size(), count);
  for (const bool apart : {false, true}) {
    std::vector<T> gathered;
    const auto value = [&](int64_t i) { return Value<T>(comm.rank(), i); };
    RETURN_IF_ERROR(ScatterAndGather<T>(comm, offsets, {apart}, value, &gathered));
    for (int64_t i = 0; i < count; ++i) {
      T sum = 0;
      for (int q = 0; q < comm.size(); ++q) sum += Value<T>(q, i);
      RETURN_IF_ERROR(Expect(gathered[static_cast<size_t>(i)] == sum,
                             apart ? "shares apart" : "shares in place"));
    }
  }
  return absl::OkStatus();
}

inline absl::Status CheckBroadcast(Communicator& comm, int64_t bytes) {
  auto stream = tensor::MakeInlineStream();
  for (const int root : {0, comm.size() - 1}) {
    std::vector<std::byte> data(static_cast<size_t>(bytes));
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<std::byte>(comm.rank() == root ? i * 31 % 251 : 0);
    RETURN_IF_ERROR(comm.WaitHost(comm.Broadcast(data, root, *stream), kDeadline));
    for (size_t i = 0; i < data.size(); ++i) {
      RETURN_IF_ERROR(Expect(data[i] == static_cast<std::byte>(i * 31 % 251), "Broadcast"));
    }
  }
  return absl::OkStatus();
}

// All pairs, two channels, the second received first. Needs 2 * 8 * 2 * ranks operations in flight.
inline absl::Status CheckMessages(Communicator& comm) {
  auto stream = tensor::MakeInlineStream();
  constexpr int kMessages = 8;
  int sent[kMessages][2];
  std::vector<std::array<std::array<int, 2>, kMessages>> received(static_cast<size_t>(comm.size()));
  std::vector<Ticket> tickets;
  for (int k = 0; k < kMessages; ++k) {
    for (uint32_t channel : {0u, 1u}) {
      sent[k][channel] = comm.rank() * 1000 + static_cast<int>(channel) * 100 + k;
      for (int peer = 0; peer < comm.size(); ++peer) {
        tickets.push_back(
            comm.Send(std::as_bytes(std::span(&sent[k][channel], 1)), peer, channel, *stream));
      }
    }
  }
  // The second channel is received first.
  for (uint32_t channel : {1u, 0u}) {
    for (int k = 0; k < kMessages; ++k) {
      for (int peer = 0; peer < comm.size(); ++peer) {
        tickets.push_back(comm.Recv(
            std::as_writable_bytes(std::span(&received[static_cast<size_t>(peer)][k][channel], 1)),
            peer, channel, *stream));
      }
    }
  }
  for (Ticket ticket : tickets) RETURN_IF_ERROR(comm.WaitHost(ticket, kDeadline));
  for (int peer = 0; peer < comm.size(); ++peer) {
    for (int k = 0; k < kMessages; ++k) {
      for (int channel = 0; channel < 2; ++channel) {
        RETURN_IF_ERROR(Expect(
            received[static_cast<size_t>(peer)][k][channel] == peer * 1000 + channel * 100 + k,
            "order"));
      }
    }
  }

  return absl::OkStatus();
}

// A share apart has the bits of one in place.
inline absl::Status CheckShardedBits(Communicator& comm, int64_t count) {
  const std::vector<int64_t> offsets = UnevenOffsets(comm.size(), count);
  const auto value = [&](int64_t i) {
    return 1.0F / static_cast<float>(3 + (i * 7919 + comm.rank() * 104729) % 1009);
  };
  std::vector<float> in_place, apart;
  RETURN_IF_ERROR(ScatterAndGather<float>(comm, offsets, {}, value, &in_place));
  RETURN_IF_ERROR(ScatterAndGather<float>(comm, offsets, {true}, value, &apart));
  return Expect(count == 0 || std::memcmp(in_place.data(), apart.data(),
                                          in_place.size() * sizeof(float)) == 0,
                "bits differ by where the share lies");
}

inline tensor::BFloat16 Bf16Value(int rank, int64_t i) {
  const float size = 1.0F / static_cast<float>(3 + (i * 7919 + rank * 104729) % 1009);
  return tensor::BFloat16((i + rank) % 3 == 0 ? -size : size);
}

// Sums of bf16 against f64: every addition may round once, by half of 2^-7 of a partial sum, which
// is no larger than the magnitudes together; and in f32 before.
inline absl::Status ExpectBf16Sums(int ranks, const std::vector<tensor::BFloat16>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    double exact = 0, magnitude = 0;
    for (int q = 0; q < ranks; ++q) {
      const auto term =
          static_cast<double>(static_cast<float>(Bf16Value(q, static_cast<int64_t>(i))));
      exact += term;
      magnitude += std::fabs(term);
    }
    const double error = std::fabs(static_cast<double>(static_cast<float>(sums[i])) - exact);
    const double allowed = (ranks - 1) * (0x1p-8 + 0x1p-23) * magnitude * 1.01;
    RETURN_IF_ERROR(Expect(error <= allowed, "a sum of bf16"));
  }
  return absl::OkStatus();
}

inline absl::Status CheckBf16(Communicator& comm, int64_t count) {
  using tensor::BFloat16;
  auto stream = tensor::MakeInlineStream();
  const auto value = [&](int64_t i) { return Bf16Value(comm.rank(), i); };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    Fenced<BFloat16> data(count, BFloat16(77));
    for (int64_t i = 0; i < count; ++i) data.data()[i] = value(i);
    // One rank's vote.
    const bool votes = op == ReduceOp::kMax && count > 2;
    if (votes && comm.rank() == comm.size() - 1) data.data()[2] = BFloat16(std::nanf(""));
    RETURN_IF_ERROR(comm.WaitHost(
        comm.AllReduce(data.data(), count, TypeOf<BFloat16>(), op, *stream), kDeadline));
    RETURN_IF_ERROR(Expect(data.FencesStand(), "memory outside was written"));
    std::vector<BFloat16> got(data.data(), data.data() + count), first = got;
    RETURN_IF_ERROR(comm.WaitHost(
        comm.Broadcast(std::as_writable_bytes(std::span(first)), 0, *stream), kDeadline));
    RETURN_IF_ERROR(Expect(first == got, "bits of bf16 differ by rank"));
    if (op == ReduceOp::kSum) RETURN_IF_ERROR(ExpectBf16Sums(comm.size(), got));
    if (votes) RETURN_IF_ERROR(Expect(std::isnan(static_cast<float>(got[2])), "a lost vote"));
    for (int64_t i = 0; op == ReduceOp::kMax && i < count; ++i) {
      float most = static_cast<float>(Bf16Value(0, i));
      for (int q = 1; q < comm.size(); ++q)
        most = std::max(most, static_cast<float>(Bf16Value(q, i)));
      RETURN_IF_ERROR(
          Expect((votes && i == 2) || static_cast<float>(got[static_cast<size_t>(i)]) == most,
                 "a maximum of bf16"));
    }
  }
  const std::vector<int64_t> offsets = UnevenOffsets(comm.size(), count);
  std::vector<BFloat16> in_place, apart;
  RETURN_IF_ERROR(ScatterAndGather<BFloat16>(comm, offsets, {}, value, &in_place));
  RETURN_IF_ERROR(ExpectBf16Sums(comm.size(), in_place));
  RETURN_IF_ERROR(ScatterAndGather<BFloat16>(comm, offsets, {true}, value, &apart));
  return Expect(in_place == apart, "bits of bf16 differ by where the share lies");
}

// The bits of private memory, of every collective whose buffers lie where `places` says.
template <typename T>
absl::Status CheckPlaces(Communicator& comm, int64_t count, const Places& places) {
  auto stream = tensor::MakeInlineStream();
  const auto value = [&](int64_t i) {
    const float size = 1.0F / static_cast<float>(3 + (i * 7919 + comm.rank() * 104729) % 1009);
    return T((i + comm.rank()) % 3 == 0 ? -size : size);
  };
  const auto same = [](const T* a, const T* b, int64_t n) {
    return n == 0 || std::memcmp(a, b, static_cast<size_t>(n) * sizeof(T)) == 0;
  };
  Fenced<T> plain(count, T(7)), placed(count, T(7), places.data);
  for (Fenced<T>* one : {&plain, &placed}) {
    for (int64_t i = 0; i < count; ++i) one->data()[i] = value(i);
    RETURN_IF_ERROR(comm.WaitHost(
        comm.AllReduce(one->data(), count, TypeOf<T>(), ReduceOp::kSum, *stream), kDeadline));
  }
  RETURN_IF_ERROR(Expect(same(plain.data(), placed.data(), count), "AllReduce in a place"));
  RETURN_IF_ERROR(Expect(placed.FencesStand(), "memory outside the place was written"));
  const std::vector<int64_t> offsets = UnevenOffsets(comm.size(), count);
  std::vector<T> expected, gathered;
  RETURN_IF_ERROR(ScatterAndGather<T>(comm, offsets, {}, value, &expected));
  RETURN_IF_ERROR(ScatterAndGather<T>(comm, offsets, places, value, &gathered));
  return Expect(same(expected.data(), gathered.data(), count), "shares in a place");
}

// Of each rank of a fabric, for CheckNodeMemory.
inline constexpr size_t kNodeBytes = 4 << 20;

// Buffers in node memory, at other offsets on each rank; some of the ranks' elsewhere.
inline absl::Status CheckNodeMemory(Communicator& comm, const NodeMemory& first,
                                    const NodeMemory& second, int64_t large = 100003) {
  const auto at = [&](const NodeMemory& memory, int half) {
    return memory.own().data() + (kNodeBytes / 2) * static_cast<size_t>(half) +
           64 * static_cast<size_t>(comm.rank());
  };
  for (const int64_t count : {int64_t{5000}, large}) {
    for (const bool apart : {false, true}) {
      // Only what an AllGather reads must lie there, and that may be the share alone.
      const Places all{apart, at(first, 0), at(first, 1)};
      const Places shares{apart, nullptr, at(first, 1)};
      const bool odd = comm.rank() == comm.size() - 1;
      for (const Places& places : {all, shares, odd ? Places{apart} : all,
                                   odd ? Places{apart, at(second, 0), at(second, 1)} : all}) {
        RETURN_IF_ERROR(CheckPlaces<float>(comm, count, places));
        RETURN_IF_ERROR(CheckPlaces<double>(comm, count / 2, places));
        RETURN_IF_ERROR(CheckPlaces<tensor::BFloat16>(comm, 2 * count, places));
      }
    }
  }
  return absl::OkStatus();
}

inline absl::Status CheckCollectives(Communicator& comm) {
  for (const int64_t count : {0, 1, 7, 1000, 100003}) {
    RETURN_IF_ERROR(CheckAllReduce<float>(comm, count));
    RETURN_IF_ERROR(CheckSharded<float>(comm, count));
    RETURN_IF_ERROR(CheckShardedBits(comm, count));
    RETURN_IF_ERROR(CheckBf16(comm, count));
    RETURN_IF_ERROR(CheckBroadcast(comm, 9 * count));
    if (count > 1000) continue;
    RETURN_IF_ERROR(CheckAllReduce<double>(comm, count));
    RETURN_IF_ERROR(CheckAllReduce<int32_t>(comm, count));
    RETURN_IF_ERROR(CheckSharded<double>(comm, count));
  }
  return absl::OkStatus();
}

// Numbers whose sum depends on the order of adding: every rank must hold the same bits, twice in a
// row. Several collectives are under way at once.
inline absl::Status CheckBits(Communicator& comm) {
  auto stream = tensor::MakeInlineStream();
  constexpr int kCalls = 5;
  const std::array<int64_t, kCalls> counts = {3, 777, 40000, 5, 70001};
  std::array<std::vector<float>, kCalls> first;
  for (int round = 0; round < 2; ++round) {
    std::array<std::vector<float>, kCalls> data;
    std::array<Ticket, kCalls> tickets;
    for (size_t c = 0; c < kCalls; ++c) {
      for (int64_t i = 0; i < counts[c]; ++i) {
        data[c].push_back(1.0F / static_cast<float>(3 + (i * 7919 + comm.rank() * 104729) % 1009));
      }
      tickets[c] =
          comm.AllReduce(data[c].data(), counts[c], tensor::DType::kF32, ReduceOp::kSum, *stream);
    }
    for (const Ticket ticket : tickets) RETURN_IF_ERROR(comm.WaitHost(ticket, kDeadline));
    for (size_t c = 0; c < kCalls; ++c) {
      const size_t bytes = data[c].size() * sizeof(float);
      std::vector<float> of_first_rank = data[c];
      const auto raw = std::as_writable_bytes(std::span(of_first_rank));
      RETURN_IF_ERROR(comm.WaitHost(comm.Broadcast(raw, 0, *stream), kDeadline));
      RETURN_IF_ERROR(Expect(std::memcmp(of_first_rank.data(), data[c].data(), bytes) == 0,
                             "bits differ by rank"));
      if (round == 0) first[c] = data[c];
      RETURN_IF_ERROR(
          Expect(std::memcmp(first[c].data(), data[c].data(), bytes) == 0, "bits differ by run"));
    }
  }
  return absl::OkStatus();
}

}  // namespace trireme::comm
