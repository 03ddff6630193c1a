// The tests' answer to runtime/engine/mutation.h: at most one known bug, switched on and off.
#include <atomic>

#include "runtime/engine/mutation.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {
std::atomic<Mutation> planted{Mutation::kCount};
}  // namespace

void PlantMutation(Mutation mutation) { planted = mutation; }
bool Mutated(Mutation mutation) { return planted.load(std::memory_order_relaxed) == mutation; }

}  // namespace trireme::engine
