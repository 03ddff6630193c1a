#include "runtime/tensor/memory_gate.h"

#include <sys/mman.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace trireme::tensor {

namespace {

void Set(std::span<std::byte> memory, int protection) {
  TRIREME_CHECK(mprotect(memory.data(), memory.size(), protection) == 0);
}

}  // namespace

void MemoryGate::Add(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  memories_.push_back(memory);
  if (inside_ == 0) Set(memory, PROT_NONE);
}

void MemoryGate::Remove(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  std::erase_if(memories_, [&](std::span<std::byte> each) { return each.data() == memory.data(); });
  Set(memory, PROT_READ | PROT_WRITE);
}

void MemoryGate::Enter() {
  const std::lock_guard lock(mutex_);
  if (inside_++ == 0) Protect(PROT_READ | PROT_WRITE);
}

void MemoryGate::Leave() {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(inside_ > 0);
  if (--inside_ == 0) Protect(PROT_NONE);
}

void MemoryGate::Protect(int protection) const {
  for (const std::span<std::byte> memory : memories_) Set(memory, protection);
}

}  // namespace trireme::tensor
