// What could not be removed: it is let be for a day, so that it is not tried instead of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>

namespace trireme::coordinator {

// Of one thread.
class Stuck {
 public:
  static constexpr int64_t kLetBeNs = int64_t{86400} * 1000000000;

  // Of more than `most` paths those that were tried longest ago are forgotten.
  explicit Stuck(size_t most) : most_(most) {}

  void Add(const std::string& path, int64_t now_unix_ns);
  bool Contains(const std::string& path) const { return paths_.contains(path); }
  // Those whose day is over, so many at most, longest ago first: the others wait on, so that there
  // are places for what never failed. A clock that was set back ends the day.
  void Forget(size_t most, int64_t now_unix_ns);

 private:
  void ForgetFirst();

  const size_t most_;
  std::set<std::string> paths_;
  std::deque<std::pair<std::string, int64_t>> tried_;  // when, in that order
};

}  // namespace trireme::coordinator
