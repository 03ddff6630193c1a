// Which store this is, and what of it others may have seen: docs/adr/0018.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/v1/agent.pb.h"

namespace trireme::coordinator {

// The time from one opening of the store by a daemon to the next.
struct Epoch {
  uint64_t number = 0;          // from 1, ascending
  uint64_t opening = 0;         // drawn when it began
  uint64_t after_sequence = 0;  // of the newest event when it began
};

// Immutable.
class StoreIdentity {
 public:
  StoreIdentity() = default;
  // `epochs` ascend; the last is the present one.
  StoreIdentity(std::string store, std::vector<Epoch> epochs);

  // UUID; empty: of no store.
  const std::string& store() const { return store_; }
  // Of the present epoch, when the newest event is `sequence`.
  v1::StorePosition At(uint64_t sequence) const;
  // Whether all that was in the store at `served` is in this one, whose newest event is `sequence`.
  // False where the epoch is older than those that are kept.
  bool Continues(const v1::StorePosition& served, uint64_t sequence) const;

 private:
  std::string store_;
  std::vector<Epoch> epochs_;
};

}  // namespace trireme::coordinator
