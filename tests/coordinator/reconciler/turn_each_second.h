// The turns that a daemon has while time passes: one that comes late is nobody's silence.
#pragma once

#include <cstdint>

#include "coordinator/reconciler/reconciler.h"

namespace trireme::coordinator {

inline void TurnEachSecond(Reconciler& reconciler, int64_t from_unix_ns, int64_t to_unix_ns) {
  for (int64_t now = from_unix_ns; now < to_unix_ns; now += 1'000'000'000) reconciler.Tick(now);
  reconciler.Tick(to_unix_ns);
}

}  // namespace trireme::coordinator
