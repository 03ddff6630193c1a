// Buckets of tokens.
#include "coordinator/calls/rates.h"

#include <catch2/catch.hpp>

namespace trireme::coordinator {
namespace {

constexpr int64_t kMs = 1000000;

}  // namespace

TEST_CASE("rates: a burst is let through then a call for each token") {
  CallRates rates({10, 3}, {0, 0});
  for (int call = 0; call < 3; ++call) CHECK(rates.Take("ann", CallKind::kSubmit, 5 * kMs).ok());
  const absl::Status late = rates.Take("ann", CallKind::kSubmit, 5 * kMs);
  CHECK(absl::IsResourceExhausted(late));
  CHECK(RetryAfterMs(late) == 100);
  CHECK(RetryAfterMs(rates.Take("ann", CallKind::kSubmit, 65 * kMs)) == 40);
  CHECK(rates.Take("ann", CallKind::kSubmit, 105 * kMs).ok());
  CHECK_FALSE(rates.Take("ann", CallKind::kSubmit, 105 * kMs).ok());
  // An hour fills no more than the bucket.
  for (int call = 0; call < 3; ++call) {
    CHECK(rates.Take("ann", CallKind::kSubmit, 3600000 * kMs).ok());
  }
  CHECK_FALSE(rates.Take("ann", CallKind::kSubmit, 3600000 * kMs).ok());
}

TEST_CASE("rates: of one user and kind only") {
  CallRates rates({1, 1}, {1, 1});
  CHECK(rates.Take("ann", CallKind::kSubmit, 0).ok());
  CHECK_FALSE(rates.Take("ann", CallKind::kSubmit, 0).ok());
  CHECK(rates.Take("ann", CallKind::kOther, 0).ok());
  CHECK(rates.Take("ben", CallKind::kSubmit, 0).ok());
  CallRates none({0, 0}, {0, 0});
  for (int call = 0; call < 1000; ++call) REQUIRE(none.Take("ann", CallKind::kOther, 0).ok());
}

}  // namespace trireme::coordinator
