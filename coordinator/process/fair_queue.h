// A queue in which owners take turns: who puts much in holds nobody else up.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>

namespace trireme::coordinator {

// Of one owner, in order. Threads: one at a time; the owner has a mutex.
template <typename T>
class FairQueue {
 public:
  void Add(T item, const std::string& owner) {
    items_[owner].push_back(std::move(item));
    ++size_;
  }
  // There must be one.
  T Take() {
    auto turn = items_.upper_bound(last_owner_);
    if (turn == items_.end()) turn = items_.begin();
    T item = std::move(turn->second.front());
    turn->second.pop_front();
    last_owner_ = turn->first;
    if (turn->second.empty()) items_.erase(turn);
    --size_;
    return item;
  }
  size_t size() const { return size_; }
  size_t SizeOf(const std::string& owner) const {
    const auto own = items_.find(owner);
    return own == items_.end() ? 0 : own->second.size();
  }

 private:
  std::map<std::string, std::deque<T>> items_;  // by owner, none empty
  std::string last_owner_;                      // whose turn it was
  size_t size_ = 0;
};

}  // namespace trireme::coordinator
