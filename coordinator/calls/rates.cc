#include "coordinator/calls/rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/cord.h"

namespace trireme::coordinator {
namespace {

constexpr const char* kRetryAfter = "trireme/retry_after_ms";

}  // namespace

absl::Status CallRates::Take(const std::string& user, CallKind kind, int64_t now_ns) {
  const Rate& rate = kind == CallKind::kSubmit ? submits_ : others_;
  if (rate.per_second <= 0) return absl::OkStatus();
  const double burst = std::max(rate.burst, 1.0);
  const absl::MutexLock lock(&mutex_);
  const auto [found, made] = buckets_.try_emplace({user, kind}, Bucket{burst, now_ns});
  Bucket& bucket = found->second;
  const double seconds = static_cast<double>(std::max<int64_t>(0, now_ns - bucket.filled_ns)) / 1e9;
  bucket.tokens = std::min(burst, bucket.tokens + seconds * rate.per_second);
  bucket.filled_ns = std::max(bucket.filled_ns, now_ns);
  if (bucket.tokens >= 1) {
    bucket.tokens -= 1;
    return absl::OkStatus();
  }
  const auto wait_ms =
      static_cast<uint64_t>(std::ceil((1 - bucket.tokens) / rate.per_second * 1000));
  return WithRetryAfter(
      absl::ResourceExhaustedError(fmt::format(
          "{} {} a second are as many as {} may make; ask again in {} ms", rate.per_second,
          kind == CallKind::kSubmit ? "submissions" : "calls", user, wait_ms)),
      wait_ms);
}

absl::Status WithRetryAfter(absl::Status status, uint64_t milliseconds) {
  status.SetPayload(kRetryAfter, absl::Cord(std::to_string(milliseconds)));
  return status;
}

uint64_t RetryAfterMs(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfter);
  return payload ? std::strtoull(std::string(*payload).c_str(), nullptr, 10) : 0;
}

}  // namespace trireme::coordinator
