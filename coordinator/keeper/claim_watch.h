// Looks once a second at the claims of run folders, each on a thread of its own: a file system that
// hangs holds up the looks at what lies on it, and nobody else.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "coordinator/keeper/lifeline.h"

namespace trireme::keeper {

struct ClaimNews {
  ClaimSight sight = ClaimSight::kUnknown;
  int64_t asked_ns = 0;  // base::BoottimeNs before the look
};

// One thread, which never waits for a disk.
class ClaimWatch {
 public:
  explicit ClaimWatch(std::chrono::milliseconds every = std::chrono::seconds(1));
  // Leaves behind threads that a disk holds; they touch nothing of ours.
  ~ClaimWatch();
  ClaimWatch(const ClaimWatch&) = delete;
  ClaimWatch& operator=(const ClaimWatch&) = delete;

  // The newest look at what `attempt` is in this folder; looks from the first call on.
  ClaimNews Of(const std::string& run_folder, uint32_t attempt);
  // Looks no more at those that were not asked for since the last call.
  void DropOthers();

 private:
  class Looker;
  struct Shared;
  const std::chrono::milliseconds every_;
  struct Watched {
    std::unique_ptr<Looker> looker;
    bool asked = true;
  };
  std::map<std::pair<std::string, uint32_t>, Watched> watched_;
};

}  // namespace trireme::keeper
