// The page of a group's member in shared memory: whole at any instruction, damage is seen, and
// bytes are those of docs/formats/group.md, which are spelled out here.
#include "checkpoint/group/group_page.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/checksum/crc32c.h"

namespace trireme::checkpoint {
namespace {

struct alignas(8) PageFile {
  std::array<std::byte, 2 * kGroupCopyBytes> bytes{};
};

GroupPage Sample() {
  GroupPage page{.settled = 3, .since = 2, .last_round = 9, .counts = {7, 2, 140}};
  page.areas[0] = {AreaPhase::kFilling, {9, 3, 160}};
  page.areas[1] = {AreaPhase::kSealed, {7, 2, 140}};
  return page;
}

void PutWord(PageFile& file, size_t at, uint64_t value) {
  std::memcpy(file.bytes.data() + at, &value, 8);
}

TEST_CASE("group page: the newer of two copies is read, and a file of zeros is a new one") {
  PageFile file;
  REQUIRE(LoadGroupPage(file.bytes).value() == GroupPage{});
  GroupPage page = Sample();
  for (uint64_t last = 9; last < 15; ++last) {
    page.last_round = last;
    StoreGroupPage(page, file.bytes);
    REQUIRE(LoadGroupPage(file.bytes).value() == page);
  }
}

TEST_CASE("group page: its bytes are those of the document") {
  PageFile expected;
  const uint64_t words[] = {0x14750, 0, 1, 3, 2, 9, 7, 2, 140, 1, 9, 3, 160, 2, 7, 2, 140};
  for (size_t i = 0; i < 17; ++i) PutWord(expected, 8 * i, words[i]);
  std::memcpy(expected.bytes.data() + 8, "TRIRGRUP", 8);
  const uint32_t crc = checksum::Crc32c(std::span(expected.bytes).first(4092));
  std::memcpy(expected.bytes.data() + 4092, &crc, 4);
  CHECK(LoadGroupPage(expected.bytes).value() == Sample());
  PageFile file;
  StoreGroupPage(Sample(), file.bytes);
  CHECK(file.bytes == expected.bytes);
}

TEST_CASE("group page: a writer that dies at any byte leaves the page of before") {
  PageFile before;
  const GroupPage first = Sample();
  StoreGroupPage(GroupPage{}, before.bytes);
  StoreGroupPage(first, before.bytes);
  GroupPage second = first;
  second.last_round = 10;
  PageFile after = before;
  StoreGroupPage(second, after.bytes);
  PageFile torn = before;
  PutWord(torn, 0, 0);
  for (size_t written = 8; written < kGroupCopyBytes; ++written) {
    torn.bytes[written] = after.bytes[written];
    if (LoadGroupPage(torn.bytes).value() != first) FAIL("torn after " << written << " bytes");
  }
  std::memcpy(torn.bytes.data(), after.bytes.data(), 8);
  CHECK(LoadGroupPage(torn.bytes).value() == second);
}

TEST_CASE("group page: each flipped bit of either copy is seen, and no older page taken for it") {
  PageFile file;
  StoreGroupPage(GroupPage{}, file.bytes);
  StoreGroupPage(Sample(), file.bytes);
  for (size_t bit = 0; bit < 8 * file.bytes.size(); ++bit) {
    PageFile flipped = file;
    flipped.bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    if (LoadGroupPage(flipped.bytes).ok()) FAIL("bit " << bit);
  }
}

TEST_CASE("group page: what cannot be is refused") {
  const auto refused = [](const GroupPage& page) {
    PageFile file;
    StoreGroupPage(page, file.bytes);
    return absl::IsDataLoss(LoadGroupPage(file.bytes).status());
  };
  GroupPage page = Sample();
  CHECK_FALSE(refused(page));
  page.last_round = 8;  // one that is known fills
  CHECK(refused(page));
  page = Sample();
  page.areas[0].of.round = 6;  // older than what counts
  CHECK(refused(page));
  page = Sample();
  page.areas[1].of.version = 141;  // of the round that counts, another version
  CHECK(refused(page));
  page = Sample();
  page.areas[0].phase = AreaPhase::kEmpty;  // and of a round
  CHECK(refused(page));
  page = Sample();
  page.counts = {8, 2, 150};
  page.areas[1] = {AreaPhase::kSealed, {8, 2, 150}};
  CHECK_FALSE(refused(page));
  page.areas[1] = page.areas[0];
  CHECK(refused(page));
}

}  // namespace
}  // namespace trireme::checkpoint
