// Which of two words about a rank is newer: the keeper's own look at its flight recorder, or what
// the rank has sent. Pure.
#pragma once

#include <cstdint>

#include "trireme/v1/worker.pb.h"

namespace trireme::keeper {

// Puts into `seen` what `said` knows better, as where the recorder cannot be read; `age_ms`: since
// it came. Life and failure stay the keeper's.
void TakeFresher(const v1::RankReport& said, uint64_t age_ms, v1::RankReport& seen);
// The progress of rank 0, of `report`.
void TakeFresher(const v1::Progress& said, v1::AttemptReport& report);

}  // namespace trireme::keeper
