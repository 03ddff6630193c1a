#include "coordinator/retention/stuck.h"

namespace trireme::coordinator {

void Stuck::Add(const std::string& path, int64_t now_unix_ns) {
  if (!paths_.insert(path).second) return;
  tried_.emplace_back(path, now_unix_ns);
  if (tried_.size() > most_) ForgetFirst();
}

void Stuck::Forget(size_t most, int64_t now_unix_ns) {
  for (; most > 0 && !tried_.empty(); --most) {
    const int64_t tried = tried_.front().second;
    if (now_unix_ns >= tried && now_unix_ns - tried < kLetBeNs) return;
    ForgetFirst();
  }
}

void Stuck::ForgetFirst() {
  paths_.erase(tried_.front().first);
  tried_.pop_front();
}

}  // namespace trireme::coordinator
