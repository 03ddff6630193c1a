// The tests' answer to runtime/engine/mutation.h: at most one known bug, switched on and off.
#include <atomic>

#include "runtime/engine/mutation.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {
std::atomic<Mutation> planted{Mutation::kCount};
std::atomic<uint32_t> planted_bucket{kEachBucket};
}  // namespace

void PlantMutation(Mutation mutation, uint32_t bucket) {
  planted_bucket = bucket;
  planted = mutation;
}
bool Mutated(Mutation mutation) { return planted.load(std::memory_order_relaxed) == mutation; }
bool Mutated(Mutation mutation, uint32_t bucket) {
  const uint32_t only = planted_bucket.load(std::memory_order_relaxed);
  return Mutated(mutation) && (only == kEachBucket || only == bucket);
}

}  // namespace trireme::engine
