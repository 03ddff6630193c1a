#include "coordinator/job_store/store_identity.h"

#include <algorithm>
#include <utility>

namespace trireme::coordinator {

StoreIdentity::StoreIdentity(std::string store, std::vector<Epoch> epochs)
    : store_(std::move(store)), epochs_(std::move(epochs)) {}

v1::StorePosition StoreIdentity::At(uint64_t sequence) const {
  v1::StorePosition position;
  position.set_store(store_);
  position.set_sequence(sequence);
  if (epochs_.empty()) return position;
  position.set_epoch(epochs_.back().number);
  position.set_opening(epochs_.back().opening);
  return position;
}

bool StoreIdentity::Continues(const v1::StorePosition& served, uint64_t sequence) const {
  if (served.store() != store_) return false;
  const auto found =
      std::lower_bound(epochs_.begin(), epochs_.end(), served.epoch(),
                       [](const Epoch& one, uint64_t number) { return one.number < number; });
  if (found == epochs_.end() || found->number != served.epoch() ||
      found->opening != served.opening()) {
    return false;
  }
  const auto next = std::next(found);
  return served.sequence() <= (next == epochs_.end() ? sequence : next->after_sequence);
}

}  // namespace trireme::coordinator
