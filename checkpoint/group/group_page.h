// What a member of a parity group has on record beside the memory that it describes
// (docs/formats/group.md): what each of its two areas of parity holds, and since when this memory
// belongs to the group. All that outlives an agent; what is not here is made again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

namespace trireme::checkpoint {

// A round and the version of the state whose parity it makes, which `attempt` writes. Rounds are
// numbered through all attempts of a group, from 1.
struct RoundVersion {
  uint64_t round = 0;  // 0: none
  uint64_t attempt = 0;
  uint64_t version = 0;  // 0 where the round has taken back what counted before

  bool IsNothing() const { return version == 0; }

  friend bool operator==(const RoundVersion&, const RoundVersion&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const RoundVersion& of) {
    return H::combine(std::move(hash), of.round, of.attempt, of.version);
  }
};

enum class AreaPhase : uint8_t {
  kEmpty = 0,    // whatever lies there counts nowhere
  kFilling = 1,  // a round adds to it
  kSealed = 2,   // all of the round is there
};

struct AreaRecord {
  AreaPhase phase = AreaPhase::kEmpty;
  RoundVersion of;  // zeros while empty

  friend bool operator==(const AreaRecord&, const AreaRecord&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const AreaRecord& area) {
    return H::combine(std::move(hash), area.phase, area.of);
  }
};

// One area at most is that of `counts`; the other one, then, is empty or of a later round.
struct GroupPage {
  uint64_t settled = 0;  // the attempt in which the leader was heard last
  uint64_t since = 0;    // rounds from this one on are seen here if they are sealed; 0: new memory
  uint64_t last_round = 0;  // of those begun, the highest that is known here
  RoundVersion counts;      // all members had sealed it; or it IsNothing()
  std::array<AreaRecord, 2> areas;

  // Whether this member can do its part in rebuilding `round`.
  bool Holds(uint64_t round) const {
    return AreaOf(round) < 2 && areas[AreaOf(round)].phase == AreaPhase::kSealed;
  }
  // The area of a round; 2: none is.
  uint32_t AreaOf(uint64_t round) const {
    if (round == 0) return 2;
    return areas[0].of.round == round ? 0 : areas[1].of.round == round ? 1 : 2;
  }
  // The area of a round that does not count yet; 2: none is.
  uint32_t Making() const {
    for (uint32_t area = 0; area < 2; ++area) {
      if (areas[area].of.round != counts.round && areas[area].of.round != 0) return area;
    }
    return 2;
  }

  friend bool operator==(const GroupPage&, const GroupPage&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const GroupPage& page) {
    return H::combine(std::move(hash), page.settled, page.since, page.last_round, page.counts,
                      page.areas);
  }
};

// The file of a page: two copies, the newer of which counts.
inline constexpr size_t kGroupCopyBytes = 4096;
using GroupCopies = std::span<std::byte, 2 * kGroupCopyBytes>;
using ConstGroupCopies = std::span<const std::byte, 2 * kGroupCopyBytes>;

// Writes the older copy of memory that is shared, one word last: whoever dies at any instruction
// leaves the page of before or this one. `file` is aligned to 8 bytes; it has one writer. A file of
// zeros is one that was never written.
void StoreGroupPage(const GroupPage& page, GroupCopies file);
// The newer copy; a new page where none was ever written. DataLoss: one is damaged, or says
// what cannot be; FailedPrecondition: another version of the format.
absl::StatusOr<GroupPage> LoadGroupPage(ConstGroupCopies file);

}  // namespace trireme::checkpoint
