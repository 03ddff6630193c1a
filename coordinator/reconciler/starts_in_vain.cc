#include "coordinator/reconciler/starts_in_vain.h"

#include <fmt/format.h>

#include "coordinator/job_machine/unable_nodes.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

// Tries that come sooner than this after one that counts are of the same trouble: a job tries again
// after 1, 2, 4 ... seconds, and /tmp may be full, or mpirun missing while it is upgraded, for
// some.
constexpr int64_t kApartNs = 60 * int64_t{1'000'000'000};

}  // namespace

void StartsInVain::CouldNotStart(const std::string& node, const std::string& what,
                                 int64_t now_unix_ns) {
  InVain& in_vain = nodes_[node];
  ++in_vain.tries;
  in_vain.last = what;
  // A clock that was set back says nothing of the time between.
  const int64_t since_ns = now_unix_ns - in_vain.counted_unix_ns;
  if (in_vain.counted > 0 && since_ns >= 0 && since_ns < kApartNs) return;
  ++in_vain.counted;
  in_vain.counted_unix_ns = now_unix_ns;
}

uint32_t StartsInVain::TriesOn(const std::string& node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? 0 : found->second.tries;
}

std::string StartsInVain::WhyUnable(const std::string& node) const {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || found->second.counted < kUnableAfter) return "";
  return fmt::format("it could start none of {} in a row, the last of {}",
                     base::Counted(found->second.tries, "attempt"), found->second.last);
}

}  // namespace trireme::coordinator
