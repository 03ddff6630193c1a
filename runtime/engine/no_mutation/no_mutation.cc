// What programs link: no bug is planted.
#include "runtime/engine/mutation.h"

namespace trireme::engine {

bool Mutated(Mutation) { return false; }
bool Mutated(Mutation, uint32_t) { return false; }

}  // namespace trireme::engine
