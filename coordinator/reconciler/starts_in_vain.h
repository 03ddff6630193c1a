// How often in a row each node could start nothing of what it was given.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace trireme::coordinator {

// One thread, the reconciler's. Kept in memory alone.
class StartsInVain {
 public:
  // `what`: which attempt, and why, for people.
  void CouldNotStart(const std::string& node, const std::string& what, int64_t now_unix_ns);
  void Forget(const std::string& node) { nodes_.erase(node); }
  // Attempts in a row.
  uint32_t TriesOn(const std::string& node) const;
  // Of a node that could start nothing for longer than an accident lasts; else empty.
  std::string WhyUnable(const std::string& node) const;

 private:
  struct InVain {
    uint32_t tries = 0;
    uint32_t counted = 0;  // of these, without those that came too soon
    int64_t counted_unix_ns = 0;
    std::string last;
  };
  std::map<std::string, InVain> nodes_;
};

}  // namespace trireme::coordinator
