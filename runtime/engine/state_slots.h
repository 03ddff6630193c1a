// StateSlots: where the optimizer reads the training state and where it writes it, in turns
// (docs/adr/0024). What STEP has written becomes the state when all STEPs of a step are done; a
// step that updates nothing leaves all as it was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/checksum/lane_sums.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

class StateSlots {
 public:
  // Without slots the state is updated where it is.
  StateSlots(const v1::Plan& plan, uint32_t pipeline);

  bool on() const { return count_ > 0; }
  static bool Has(v1::PoolKind pool) {
    return pool == v1::MASTER || pool == v1::MOMENT1 || pool == v1::MOMENT2;
  }
  uint32_t count() const { return count_; }
  // The slot that is the state, and that which the next step writes. They change between programs.
  uint32_t state() const { return state_; }
  uint32_t next() const { return next_; }
  // Another than the one behind the state. Nothing runs.
  void set_next(uint32_t slot);

  // The step that runs will update: inside a task before its STEPs.
  void Begin();
  // What its STEPs have written is the state from here on. Nothing runs.
  void Commit() { Resume(next_); }
  // The version in `slot` is the state. Nothing runs.
  void Resume(uint32_t slot);
  // What the format's table has of the slot that is being written, `table` having an entry for each
  // of its pieces.
  void FoldInto(std::span<uint64_t> table) const;
  // Of the pieces of a pool in the slot that was written last, or is being written.
  std::span<checksum::LaneSums> sums(v1::PoolKind pool) { return sums_[IndexOf(pool)]; }

 private:
  static size_t IndexOf(v1::PoolKind pool) {
    return pool == v1::MASTER ? 0 : pool == v1::MOMENT1 ? 1 : 2;
  }

  uint32_t count_ = 0, state_ = 0, next_ = 0;
  std::array<std::vector<checksum::LaneSums>, 3> sums_;
  std::array<size_t, 3> first_piece_{};  // of each pool in a slot
};

}  // namespace trireme::engine
