#include "coordinator/keeper/fresher.h"

namespace trireme::keeper {
namespace {

// A message is written a moment before it comes, and a rank sends one a second: what is newer by
// less has been seen in the recorder as well.
constexpr uint64_t kNewerByMs = 2000;

}  // namespace

void TakeFresher(const v1::RankReport& said, uint64_t age_ms, v1::RankReport& seen) {
  if (said.has_timing() && said.timing().step() > seen.timing().step()) {
    *seen.mutable_timing() = said.timing();
  }
  if (seen.life() == v1::RANK_DEAD || seen.life() == v1::RANK_ENDED) return;
  const bool nothing_seen = seen.position().empty();
  if (!nothing_seen && said.still_ms() + age_ms + kNewerByMs >= seen.still_ms()) return;
  if (said.position().empty() || said.step() < seen.step()) return;
  seen.set_step(said.step());
  seen.set_position(said.position());
  seen.set_peer(said.peer());
  seen.set_still_ms(said.still_ms() + age_ms);
  seen.set_waiting_ms(said.waiting_ms() == 0 ? 0 : said.waiting_ms() + age_ms);
}

void TakeFresher(const v1::Progress& said, v1::AttemptReport& report) {
  if (said.steps_done() > report.progress().steps_done()) *report.mutable_progress() = said;
}

}  // namespace trireme::keeper
