// Channels: the numbers that keep the messages of two ranks of a group apart, and who uses which. A
// backend may send them as tags, and MPI promises tags up to 32,767 alone (Open MPI over UCX ends
// at 2^23 - 1, others lower): so all of them lie within that promise.
//
//   0 ...                     the callers' own
//   kCollectiveChannels ...   of collectives, a range for each kind of message of a coded one
//   kCodedMessageSizes ...    beside each of the callers' own: the sizes of its coded messages
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace trireme::comm {

// Channels that callers have: two for every cut between virtual stages, so 4,096 cuts.
inline constexpr uint32_t kCallerChannels = uint32_t{1} << 13;
inline constexpr uint32_t kCollectiveChannels = kCallerChannels;
// Channels of one range. A collective has that of its number, and begins again after the last:
// messages of one channel match first-in first-out, so what must differ are only the collectives of
// a group under way together, a few that follow each other.
inline constexpr uint32_t kCollectiveChannelCount = uint32_t{1} << 11;
// A coded collective has messages of four kinds.
inline constexpr uint32_t kCollectiveRanges = 4;
inline constexpr uint32_t kCodedMessageSizes =
    kCollectiveChannels + kCollectiveRanges * kCollectiveChannelCount;
inline constexpr uint32_t kLastChannel = kCodedMessageSizes + kCallerChannels - 1;
inline constexpr uint32_t kPromisedTag = 32767;  // MPI 3.1, 8.1.2: MPI_TAG_UB is no less
static_assert(kLastChannel <= kPromisedTag);

// Of the nth collective of a group.
constexpr uint32_t CollectiveChannel(uint64_t number) {
  return kCollectiveChannels + static_cast<uint32_t>(number % kCollectiveChannelCount);
}
// The same collective's channel of range 0 to kCollectiveRanges - 1.
constexpr uint32_t ChannelInRange(uint32_t collective, uint32_t range) {
  return collective + range * kCollectiveChannelCount;
}
// The channel beside a message's own, of sizes and bounds.
constexpr uint32_t SizeChannelOf(uint32_t channel) { return kCodedMessageSizes + channel; }

// FailedPrecondition, with what to do, if a backend whose largest tag is this (none: it does not
// say) cannot carry all channels.
absl::Status CheckTags(std::optional<int64_t> largest);

}  // namespace trireme::comm
