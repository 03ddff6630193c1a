// What an agent without a coordinator says of it, by a clock of the test.
#include "coordinator/agent/complaints.h"

#include <catch2/catch.hpp>

namespace trireme::agent {
namespace {

using std::chrono::seconds;

TEST_CASE("a line that cannot be made is told at once and then now and then") {
  const Complaints::Clock::time_point start{};
  Complaints complaints(start);
  const absl::Status away = absl::UnavailableError("nobody there");
  CHECK_FALSE(complaints.Due(away, 0, start));  // not dialled yet
  CHECK(complaints.Due(away, 1, start + seconds(1)));
  for (uint64_t failures = 1; failures < 6; ++failures) {
    CHECK_FALSE(complaints.Due(away, failures, start + seconds(5 * failures)));
  }
  CHECK(complaints.Due(away, 6, start + seconds(31)));
  CHECK_FALSE(complaints.Due(absl::OkStatus(), 6, start + seconds(32)));
  CHECK(complaints.Due(away, 7, start + seconds(33)));
}

TEST_CASE("a dial that is never answered is told too") {
  const Complaints::Clock::time_point start{};
  Complaints complaints(start);
  const absl::Status dialling = absl::UnavailableError("not dialled yet");
  CHECK_FALSE(complaints.Due(dialling, 0, start));
  CHECK_FALSE(complaints.Due(dialling, 0, start + seconds(29)));
  CHECK(complaints.Due(dialling, 0, start + seconds(30)));
  CHECK_FALSE(complaints.Due(dialling, 0, start + seconds(31)));
}

TEST_CASE("what only people can mend is told each time") {
  const Complaints::Clock::time_point start{};
  Complaints complaints(start);
  for (const absl::Status& refused :
       {absl::AlreadyExistsError("node n1 is kept by another machine"),
        absl::AbortedError("taken over")}) {
    complaints = Complaints(start);
    for (uint64_t failures = 1; failures < 6; ++failures) {
      CHECK(complaints.Due(refused, failures, start + seconds(failures)));
      CHECK_FALSE(complaints.Due(refused, failures, start + seconds(failures)));
    }
  }
}

}  // namespace
}  // namespace trireme::agent
