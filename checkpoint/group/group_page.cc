#include "checkpoint/group/group_page.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/checksum/crc32c.h"

namespace trireme::checkpoint {
namespace {

using Copy = std::span<std::byte, kGroupCopyBytes>;
using Bytes = std::array<std::byte, kGroupCopyBytes>;

constexpr char kMagic[] = "TRIRGRUP";
constexpr uint64_t kVersion = 1;
constexpr size_t kGuarded = kGroupCopyBytes - 4;
// The low bits of each word but 0, so that no single bit makes a 0 of it.
constexpr uint64_t kMark = 0x4750;

std::atomic_ref<uint64_t> WordOf(std::byte* copy) {
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(copy));
}

uint64_t Load(ConstGroupCopies file, size_t copy) {
  // C++20 has no atomic_ref of what is const; a load of a word writes nothing.
  auto* begin = const_cast<std::byte*>(file.data()) + copy * kGroupCopyBytes;
  return WordOf(begin).load(std::memory_order_acquire);
}

uint32_t Guard(std::span<const std::byte> copy) { return checksum::Crc32c(copy.first(kGuarded)); }

// What a copy says behind its word, eight bytes each.
std::array<uint64_t, 14> FieldsOf(const GroupPage& page) {
  std::array<uint64_t, 14> fields{page.settled,      page.since,          page.last_round,
                                  page.counts.round, page.counts.attempt, page.counts.version};
  size_t at = 6;
  for (const AreaRecord& area : page.areas) {
    fields[at++] = static_cast<uint64_t>(area.phase);
    fields[at++] = area.of.round;
    fields[at++] = area.of.attempt;
    fields[at++] = area.of.version;
  }
  return fields;
}
constexpr size_t kFields = 24;

// That it is one that the machine makes.
bool IsPossible(const GroupPage& page) {
  for (const AreaRecord& area : page.areas) {
    if (area.phase > AreaPhase::kSealed || area.of.round > page.last_round) return false;
    if ((area.phase == AreaPhase::kEmpty) != (area.of == RoundVersion{})) return false;
    if (area.of.round != 0 && area.of.round < page.counts.round) return false;
    if (area.of.round == page.counts.round && area.of.round != 0 &&
        (area.phase != AreaPhase::kSealed || area.of != page.counts)) {
      return false;
    }
  }
  const bool both = page.areas[0].of.round != 0 && page.areas[1].of.round != 0;
  return !both ||
         (page.areas[0].of.round != page.areas[1].of.round && page.Holds(page.counts.round));
}

absl::StatusOr<GroupPage> Parse(const Bytes& copy) {
  if (std::memcmp(copy.data() + 8, kMagic, 8) != 0) {
    return absl::DataLossError("it does not begin as a group's page does");
  }
  uint64_t version = 0;
  std::memcpy(&version, copy.data() + 16, 8);
  if (version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it is of version ", version, " of the format, this program reads ", kVersion));
  }
  uint32_t guard = 0;
  std::memcpy(&guard, copy.data() + kGuarded, 4);
  if (guard != Guard(copy)) return absl::DataLossError("the checksum of a group's page is wrong");
  std::array<uint64_t, 14> fields;
  std::memcpy(fields.data(), copy.data() + kFields, sizeof fields);
  GroupPage page{.settled = fields[0],
                 .since = fields[1],
                 .last_round = fields[2],
                 .counts = {fields[3], fields[4], fields[5]}};
  for (size_t area = 0; area < 2; ++area) {
    const uint64_t* of = &fields[6 + 4 * area];
    if (of[0] > 2) return absl::DataLossError("a group's page says what cannot be");
    page.areas[area] = {static_cast<AreaPhase>(of[0]), {of[1], of[2], of[3]}};
  }
  if (!IsPossible(page)) return absl::DataLossError("a group's page says what cannot be");
  return page;
}

}  // namespace

void StoreGroupPage(const GroupPage& page, GroupCopies file) {
  const std::array<uint64_t, 2> words{Load(file, 0), Load(file, 1)};
  const size_t older = words[0] <= words[1] ? 0 : 1;
  const uint64_t next = ((std::max(words[0], words[1]) >> 16) + 1) << 16 | kMark;
  Bytes bytes{};
  std::memcpy(bytes.data(), &next, 8);
  std::memcpy(bytes.data() + 8, kMagic, 8);
  std::memcpy(bytes.data() + 16, &kVersion, 8);
  const std::array<uint64_t, 14> fields = FieldsOf(page);
  std::memcpy(bytes.data() + kFields, fields.data(), sizeof fields);
  const uint32_t guard = Guard(bytes);
  std::memcpy(bytes.data() + kGuarded, &guard, 4);
  std::byte* copy = file.data() + older * kGroupCopyBytes;
  WordOf(copy).store(0, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::memcpy(copy + 8, bytes.data() + 8, bytes.size() - 8);
  WordOf(copy).store(next, std::memory_order_release);
}

absl::StatusOr<GroupPage> LoadGroupPage(ConstGroupCopies file) {
  // A copy that is being written has no word, so one with a word that is not whole is damaged: the
  // other one, which is older, may speak of what was let go of since.
  uint64_t newest = 0;
  GroupPage page;
  for (size_t copy = 0; copy < 2; ++copy) {
    const uint64_t word = Load(file, copy);
    if (word == 0) continue;
    Bytes bytes;
    std::memcpy(bytes.data(), file.data() + copy * kGroupCopyBytes, bytes.size());
    absl::StatusOr<GroupPage> parsed = Parse(bytes);
    if (!parsed.ok()) return parsed;
    if (word <= newest) continue;
    newest = word;
    page = *parsed;
  }
  return page;
}

}  // namespace trireme::checkpoint
