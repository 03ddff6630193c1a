#include "coordinator/keeper/lifeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::keeper {
namespace {

// A claim is read once a second, a report is taken as often.
constexpr int64_t kHearFirstNs = int64_t{5} * 1000000000;

}  // namespace

Lifeline Lifeline::Adopted(int64_t now_ns) {
  Lifeline line(0);
  line.HeldUp(now_ns);
  return line;
}

void Lifeline::HeldUp(int64_t now_ns) { judged_from_ns_ = now_ns + kHearFirstNs; }

void Lifeline::Taken(int64_t sent_ns) { news_ns_ = std::max(news_ns_, sent_ns); }

void Lifeline::Seen(ClaimSight sight, int64_t asked_ns) {
  replaced_ = replaced_ || sight == ClaimSight::kReplaced;
  if (sight != ClaimSight::kOurs) return;
  news_ns_ = std::max(news_ns_, asked_ns);
  claim_ns_ = std::max(claim_ns_, asked_ns);
}

void Lifeline::Stepped(uint64_t step, bool several_nodes, int64_t since_ns) {
  if (step <= step_) return;
  // The first that is seen may be old.
  if (step_ > 0 && several_nodes) news_ns_ = std::max(news_ns_, since_ns);
  step_ = step;
}

std::string Lifeline::Cut(int64_t end_after_ns, int64_t now_ns) const {
  if (replaced_) return "a newer attempt of the job has replaced it";
  if (end_after_ns <= 0 || now_ns - news_ns_ < end_after_ns || now_ns < judged_from_ns_) return "";
  return fmt::format(
      "this node was cut off: for {:.0f} s and more it had no contact with the coordinator, the "
      "run "
      "folder or other nodes of the job, so it ended before another attempt takes its place",
      static_cast<double>(end_after_ns) / 1e9);
}

bool Lifeline::claim_read(int64_t end_after_ns, int64_t now_ns) const {
  return claim_ns_ > 0 && end_after_ns > 0 && now_ns - claim_ns_ < end_after_ns;
}

}  // namespace trireme::keeper
