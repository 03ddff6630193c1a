// The share-out of channels, at its borders; and what is refused.
#include "runtime/comm/channels.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace trireme::comm {
namespace {

using Catch::Contains;

TEST_CASE("channels: no two uses share a number, and all are tags that MPI promises") {
  // Callers' first and last, each range's first and last, sizes' first and last: in this order.
  const uint32_t last = kCollectiveChannelCount - 1;
  std::vector<uint32_t> borders = {0, kCallerChannels - 1};
  for (uint32_t range = 0; range < kCollectiveRanges; ++range) {
    borders.push_back(ChannelInRange(CollectiveChannel(0), range));
    borders.push_back(ChannelInRange(CollectiveChannel(last), range));
  }
  borders.push_back(SizeChannelOf(0));
  borders.push_back(SizeChannelOf(kCallerChannels - 1));
  for (size_t i = 1; i < borders.size(); ++i) {
    INFO("border " << i);
    CHECK(borders[i] == borders[i - 1] + (i % 2 == 1 ? (i == 1 || i + 1 == borders.size()
                                                            ? kCallerChannels - 1
                                                            : kCollectiveChannelCount - 1)
                                                     : 1));
  }
  CHECK(borders.back() == kLastChannel);
  CHECK(kLastChannel <= 32767);           // MPI's least MPI_TAG_UB
  CHECK(kLastChannel <= (1U << 23) - 1);  // Open MPI over UCX
}

TEST_CASE("channels: collectives that follow each other differ, also where numbers begin again") {
  const uint64_t count = kCollectiveChannelCount;
  for (const uint64_t number : {uint64_t{0}, count - 2, count - 1, count, 2 * count - 1,
                                (uint64_t{1} << 32) - 1, (uint64_t{1} << 63) - 1}) {
    std::set<uint32_t> near;
    for (uint64_t k = 0; k < 64; ++k) {
      const uint32_t channel = CollectiveChannel(number + k);
      CHECK(channel >= kCollectiveChannels);
      CHECK(ChannelInRange(channel, kCollectiveRanges - 1) < kCodedMessageSizes);
      near.insert(channel);
    }
    CHECK(near.size() == 64);
  }
}

TEST_CASE("channels: a backend with too few tags is refused with the figures and a way out") {
  CHECK(CheckTags(kLastChannel).ok());
  CHECK(CheckTags(kPromisedTag).ok());
  CHECK(CheckTags((int64_t{1} << 23) - 1).ok());
  CHECK(CheckTags((int64_t{1} << 31) - 1).ok());
  const auto message = [](std::optional<int64_t> largest) {
    const absl::Status status = CheckTags(largest);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  const std::string needed = "tags up to " + std::to_string(kLastChannel);
  CHECK_THAT(message(int64_t{kLastChannel} - 1),
             Contains("MPI_TAG_UB) is " + std::to_string(kLastChannel - 1)) && Contains(needed));
  CHECK_THAT(message(0), Contains("is 0,") && Contains("pml ob1"));
  CHECK_THAT(message(-1), Contains("is -1,"));
  CHECK_THAT(message(std::nullopt), Contains("is not said") && Contains(needed));
}

}  // namespace
}  // namespace trireme::comm
