// NodeMemory: memory of the ranks of a fabric that those of one machine reach as their own.
// Collectives whose data lie in it on all ranks of their group work there, without copies
// (mapped.cc). Fabric::Allocate makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::comm {

// Of all ranks; each has an object of its own, which keeps the others' memory too. Other ranks may
// still read and write this rank's part after an operation on it has failed here.
class NodeMemory {
 public:
  virtual ~NodeMemory() = default;
  // This rank's part: zero-filled, aligned to 2 MiB.
  virtual std::span<std::byte> own() const = 0;
  // Where the part of `rank` (of the whole job) begins here; null if it cannot be reached.
  virtual std::byte* Of(int rank) const = 0;
};

// What a fabric has made, by number: the same on all ranks, as all make them in the same order.
// Guarded by the fabric's lock.
class NodeMemories {
 public:
  // Those after it are used like other memory.
  static constexpr size_t kMost = 64;
  struct Place {
    int64_t memory = -1;  // number; -1: in none
    int64_t offset = 0;   // bytes
  };

  void Add(std::weak_ptr<const NodeMemory> memory) { memories_.push_back(std::move(memory)); }
  bool any() const { return !memories_.empty(); }
  Place Find(std::span<const std::byte> data) const;
  // Null once released on this rank.
  std::shared_ptr<const NodeMemory> Get(int64_t number) const {
    return memories_[static_cast<size_t>(number)].lock();
  }
  // Bit k: the k-th reaches all of `ranks` (of the whole job).
  uint64_t Reaching(std::span<const int> ranks) const;

 private:
  std::vector<std::weak_ptr<const NodeMemory>> memories_;
};

}  // namespace trireme::comm
