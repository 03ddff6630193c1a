// Who may look at the dashboard: keys of links, each good once and for five minutes, and the
// sessions of browsers that they open. Kept in memory alone and as hashes: a restart of the daemon
// ends them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/calls/access.h"

namespace trireme::dashboard {

// Threads: any. Times are CLOCK_REALTIME in ns, given by the caller.
class Sessions {
 public:
  static constexpr std::chrono::minutes kKeyLife{5};
  static constexpr std::chrono::hours kIdleLife{24};      // since it was last used
  static constexpr std::chrono::hours kLongestLife{168};  // since it was opened

  // Whether a caller may still come in, as Access::StillKnows has it; no lock of ours is held
  // then. Absent: he may.
  using Knows = std::function<bool(const coordinator::Caller&)>;
  explicit Sessions(Knows knows = nullptr) : knows_(std::move(knows)) {}

  // A new key for this caller.
  std::string MakeKey(const coordinator::Caller& caller, int64_t now_ns);
  // The secret of a new session with the rights of the key's caller; the key is spent. Nullopt: it
  // is not known, spent or too old, or its caller may not come in any more.
  std::optional<std::string> Redeem(const std::string& key, int64_t now_ns);
  // Whose session it is. One whose caller may not come in any more ends with that.
  std::optional<coordinator::Caller> Find(const std::string& secret, int64_t now_ns);
  void End(const std::string& secret);
  void EndAll();  // and spends all keys

 private:
  // Of each; then the oldest goes of whoever has most, so that nobody ends what is another's.
  static constexpr size_t kMost = 1000;

  struct Entry {
    coordinator::Caller caller;
    int64_t made_ns = 0;
    int64_t used_ns = 0;
  };
  std::optional<coordinator::Caller> FindEntry(const std::string& secret, int64_t now_ns);
  bool MayComeIn(const coordinator::Caller& caller) const { return !knows_ || knows_(caller); }
  using Entries = std::map<std::string, Entry>;  // by hash
  static void DropOne(Entries& entries);
  static void Add(Entries& entries, const std::string& secret, const coordinator::Caller& caller,
                  int64_t now_ns);

  const Knows knows_;
  absl::Mutex mutex_;
  Entries keys_ ABSL_GUARDED_BY(mutex_);
  Entries sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::dashboard
