// MemoryGate: memory that is there only while somebody has business in it. Behind a gate nothing
// can be read or written (PROT_NONE) but inside of an OpenGate, so that a host that looks into a
// device's memory ends at once, on a machine that has no device.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"

namespace trireme::tensor {

// Threads: any.
class MemoryGate {
 public:
  // `memory`: whole pages, which are shut unless somebody is inside.
  void Add(std::span<std::byte> memory);
  // Opens it for good.
  void Remove(std::span<std::byte> memory);

  // Visits may nest and meet; the last to leave shuts the gate.
  void Enter();
  void Leave();

 private:
  void Protect(int protection) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::mutex mutex_;
  std::vector<std::span<std::byte>> memories_ ABSL_GUARDED_BY(mutex_);
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A visit; `gate` may be null.
class OpenGate {
 public:
  explicit OpenGate(MemoryGate* gate) : gate_(gate) {
    if (gate_ != nullptr) gate_->Enter();
  }
  OpenGate(const OpenGate&) = delete;
  ~OpenGate() {
    if (gate_ != nullptr) gate_->Leave();
  }

 private:
  MemoryGate* const gate_;
};

}  // namespace trireme::tensor
