// Faulty: a Fabric that misbehaves at stated operations, for tests of deadlines, recovery and
// watchdogs. It decorates any other fabric and counts the operations issued on all its groups.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"

namespace trireme::comm {

struct Fault {
  enum class Kind : uint8_t {
    kDelay,  // the operation is issued after `delay`; the caller waits
    kDrop,   // the operation is not issued, and its ticket is done at once: a lost message
    kKill,   // `kill` is called, then the operation is issued if that returns
  };
  Kind kind = Kind::kDelay;
  // Of which operation: 1 is the first issued on this rank. With `every`, also of each that many
  // later.
  uint64_t operation = 1;
  uint64_t every = 0;
  std::chrono::milliseconds delay{0};
  std::function<void()> kill;
};

// Takes the fabric over. The callback runs on the issuing thread and may call Abort on a
// communicator of this rank.
std::unique_ptr<Fabric> MakeFaulty(std::unique_ptr<Fabric> fabric, std::vector<Fault> faults);

}  // namespace trireme::comm
