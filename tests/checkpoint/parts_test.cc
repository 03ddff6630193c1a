// Files of many pieces: damage in each piece and at each border of a window is found, on restoring
// and by whichever rank the piece falls to; the ranks' parts are together every byte, and alike.
#include <catch2/catch.hpp>
#include <numeric>

#include "checkpoint/client/piece_reader.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/text.h"
#include "tests/checkpoint/saved_state.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

// 42 pieces, the last one short: two windows of 16, one of 9 or 10, and their borders.
const LogicalTensor kWide{"parameter", "wide", {683, 1001}};
const LogicalTensor kSmall{"parameter", "small", {300}};

std::string SaveWide(const std::string& root) {
  std::vector<RankState> states(2);
  states[0] = WholeState({kWide});
  states[1] = WholeState({kSmall});
  for (RankState& state : states) state.Fill(5);
  REQUIRE(Save(root, 3, states).ok());
  return root + "/step-00000003";
}

TEST_CASE("damage in each piece, at both its ends, is found by whoever wants a byte of it") {
  TemporaryFolder root;
  const std::string folder = SaveWide(root.path());
  const auto opened = Open(folder);
  REQUIRE(opened.ok());
  const FileEntry& file = opened->manifest().files[0];
  const std::string path = folder + "/" + file.name;
  REQUIRE(file.crc32c.size() == 42);
  REQUIRE(file.bytes % kPieceBytes != 0);
  RankState whole = WholeState({kWide});
  REQUIRE(opened->Restore(whole.shards()).ok());
  REQUIRE(whole.Holds(5));
  for (uint64_t piece = 0; piece < file.crc32c.size(); ++piece) {
    const uint64_t begin = piece * kPieceBytes;
    const uint64_t end = std::min(file.bytes, begin + kPieceBytes);
    for (const uint64_t offset : {begin, begin + 31, end - 1}) {
      FlipByte(path, offset);
      RankState state = WholeState({kWide});
      const absl::Status status = opened->Restore(state.shards());
      INFO("byte " << offset << ": " << status.ToString());
      REQUIRE(status.code() == absl::StatusCode::kDataLoss);
      if (piece > 0) {
        REQUIRE(status.ToString().find(base::Text(": piece ", piece, " ")) != std::string::npos);
      }
      REQUIRE(Verify(folder).code() == absl::StatusCode::kDataLoss);
      FlipByte(path, offset);
    }
  }
}

TEST_CASE("cuts at every border of a window come back to the bit") {
  TemporaryFolder root;
  const auto opened = Open(SaveWide(root.path()));
  REQUIRE(opened.ok());
  constexpr int64_t kPerPiece = kPieceBytes / 4;
  const int64_t all = 683 * 1001;
  // Element 0 lies some header bytes into piece 0, so borders are near multiples, not at them.
  for (const int64_t pieces : {1, 15, 16, 17, 31, 32, 33, 41}) {
    for (const int64_t around : {-64, -1, 0, 1, 64}) {
      const int64_t cut = pieces * kPerPiece + around;
      RankState target;
      const layout::Box box = layout::Box::Whole(kWide.shape);
      target.Add(kWide, {box, {0, cut}});
      target.Add(kWide, {box, {cut, std::min(all, cut + 17 * kPerPiece)}});
      target.Add(kWide, {box, {cut, all}});
      REQUIRE(opened->Restore(target.shards()).ok());
      REQUIRE(target.Holds(5));
    }
  }
}

TEST_CASE("the parts of any number of ranks find every flipped byte, each exactly once") {
  TemporaryFolder root;
  const std::string folder = SaveWide(root.path());
  const auto opened = OpenManifest(folder);
  REQUIRE(opened.ok());
  for (const FileEntry& file : opened->manifest().files) {
    const std::string path = folder + "/" + file.name;
    for (const int count : {1, 2, 3, 7, 43, 65, 300}) {
      for (uint64_t piece = 0; piece<file.crc32c.size(); piece += count> 7 ? 5 : 1) {
        const uint64_t offset = std::min(file.bytes - 1, piece * kPieceBytes + 20000);
        FlipByte(path, offset);
        int found = 0;
        for (int rank = 0; rank < count; ++rank) {
          const absl::Status status = VerifyPart(*opened, {rank, count});
          found += status.ok() ? 0 : 1;
          if (!status.ok()) REQUIRE(status.ToString().find(file.name) != std::string::npos);
        }
        FlipByte(path, offset);
        INFO(file.name << " piece " << piece << " of " << count << " ranks");
        REQUIRE(found == 1);
      }
    }
  }
  fs::remove(folder + "/rank-001.safetensors");
  for (const int count : {1, 2, 65}) {
    int found = 0;
    for (int rank = 0; rank < count; ++rank) {
      found += VerifyPart(*opened, {rank, count}).ok() ? 0 : 1;
    }
    CHECK(found == 1);
  }
}

TEST_CASE("no rank reads more than its part, whatever number wrote it") {
  TemporaryFolder root;
  const auto opened = Open(SaveWide(root.path()));
  REQUIRE(opened.ok());
  uint64_t all = 0;
  for (const FileEntry& file : opened->manifest().files) all += file.bytes;
  for (const int count : {1, 2, 3, 5, 16, 43, 65, 300, 3072}) {
    uint64_t sum = 0;
    for (int rank = 0; rank < count; ++rank) {
      uint64_t bytes = 0;
      REQUIRE(VerifyPart(*opened, {rank, count}, &bytes).ok());
      // 43 pieces in all, of which the last of each file is short.
      const uint64_t most = (43 + static_cast<uint64_t>(count) - 1) / static_cast<uint64_t>(count);
      INFO("rank " << rank << " of " << count);
      REQUIRE(bytes <= most * kPieceBytes);
      sum += bytes;
    }
    // Both headers are shorter than a piece, so none is read twice.
    CHECK(sum == all);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
