// Parity against an oracle of its own: products by shift and xor, the layout as the table of
// docs/formats/parity.md, and Gauss's elimination for what can be rebuilt at all.
#include "checkpoint/format/parity.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/format/piece_table.h"
#include "runtime/checksum/crc32c.h"
#include "tests/checkpoint/sample_state.h"

namespace trireme::checkpoint {
namespace {

using Memory = std::vector<std::byte>;

uint8_t Product(uint8_t a, uint8_t b) {
  unsigned product = 0;
  for (unsigned bit = 0; bit < 8; ++bit) product ^= (b >> bit & 1U) != 0 ? unsigned{a} << bit : 0U;
  for (unsigned bit = 14; bit >= 8; --bit) {
    if ((product >> bit & 1U) != 0) product ^= 0x11dU << (bit - 8);
  }
  return static_cast<uint8_t>(product);
}

uint8_t Inverse(uint8_t a) {
  for (unsigned b = 1; b < 256; ++b) {
    if (Product(a, static_cast<uint8_t>(b)) == 1) return static_cast<uint8_t>(b);
  }
  FAIL("0 has no inverse");
  return 0;
}

// The coefficient of data block d in the code's block b.
uint8_t Generator(ParityShape shape, uint32_t b, uint32_t d) {
  if (b < shape.data()) return b == d ? 1 : 0;
  return Product(static_cast<uint8_t>(shape.data() ^ d), Inverse(static_cast<uint8_t>(b ^ d)));
}

// The table of the document: in stripe 0 member 0 has block 0 and the numbers fall to the right;
// each stripe is the one above, moved by one member. table[stripe][member]
std::vector<std::vector<uint32_t>> Table(uint32_t members) {
  std::vector<uint32_t> row(members);
  for (uint32_t member = 1; member < members; ++member) row[member] = members - member;
  std::vector<std::vector<uint32_t>> table;
  for (uint32_t stripe = 0; stripe < members; ++stripe) {
    table.push_back(row);
    std::rotate(row.begin(), row.end() - 1, row.end());
  }
  return table;
}

// The memories of a group. Behind the data of a member lies what must never count.
struct Scene {
  ParityGroup group;
  std::vector<uint64_t> bytes;
  std::vector<Memory> data, parity;

  std::span<const std::byte> Piece(const Contribution& of) const {
    return std::span(data[of.data.member])
        .subspan(of.data_bytes.begin, of.data_bytes.end - of.data_bytes.begin);
  }
  void AddAll() {
    for (uint32_t member = 0; member < group.shape().members; ++member) {
      for (const Contribution& each : group.Contributions(member, {0, bytes[member]})) {
        group.Add(each, Piece(each), parity[each.parity.member]);
      }
    }
  }
  // What a block holds, and what it would hold with the member's missing bytes as zeros.
  std::span<const std::byte> Stored(MemberBlock at) const {
    const uint32_t k = group.shape().data();
    const Memory& memory = at.block < k ? data[at.member] : parity[at.member];
    const uint64_t begin = (at.block < k ? at.block : at.block - k) * group.block_bytes();
    return std::span(memory).subspan(begin, group.StoredBytes(at.block, bytes[at.member]));
  }
  Memory Padded(MemberBlock at) const {
    const auto stored = Stored(at);
    Memory block(stored.begin(), stored.end());
    block.resize(group.block_bytes());
    return block;
  }
};

void Fill(Random& random, std::span<std::byte> bytes) {
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
}

Scene MakeScene(ParityShape shape, std::vector<uint64_t> bytes, Random& random) {
  const auto group = ParityGroup::Make(shape, *std::max_element(bytes.begin(), bytes.end()));
  REQUIRE(group.ok());
  Scene scene{*group, std::move(bytes), {}, {}};
  scene.data.assign(shape.members, Memory(shape.data() * group->block_bytes()));
  scene.parity.assign(shape.members, Memory(group->parity_bytes()));
  for (Memory& memory : scene.data) Fill(random, memory);
  return scene;
}

// Members of unequal bytes: none, one, all of a block and one more, and whatever comes.
std::vector<uint64_t> UnequalBytes(ParityShape shape, Random& random) {
  std::vector<uint64_t> bytes(shape.members);
  const uint64_t most = shape.data() * kPieceBytes;
  const std::array<uint64_t, 6> borders{0, 1, kPieceBytes - 1, kPieceBytes, kPieceBytes + 1, most};
  for (uint64_t& each : bytes) {
    each = Draw(random, 0, 1) == 0 ? std::min(most, borders[Draw(random, 0, 5)])
                                   : static_cast<uint64_t>(Draw(random, 0, most));
  }
  return bytes;
}

// The parity that each member must have, block by block from the document.
std::vector<Memory> ExpectedParity(const Scene& scene) {
  const ParityShape shape = scene.group.shape();
  std::vector<Memory> expected(shape.members);
  const auto table = Table(shape.members);
  for (uint32_t member = 0; member < shape.members; ++member) {
    for (uint32_t block = shape.data(); block < shape.members; ++block) {
      Memory sum(scene.group.block_bytes());
      for (const std::vector<uint32_t>& stripe : table) {
        if (stripe[member] != block) continue;
        for (uint32_t other = 0; other < shape.members; ++other) {
          if (stripe[other] >= shape.data()) continue;
          std::array<std::byte, 256> products;
          for (unsigned value = 0; value < 256; ++value) {
            products[value] = std::byte{
                Product(Generator(shape, block, stripe[other]), static_cast<uint8_t>(value))};
          }
          const auto stored = scene.Stored({other, stripe[other]});
          for (size_t at = 0; at < stored.size(); ++at) {
            sum[at] ^= products[static_cast<size_t>(stored[at])];
          }
        }
      }
      expected[member].insert(expected[member].end(), sum.begin(), sum.end());
    }
  }
  return expected;
}

// Whether each block of each member in `lost` comes back, over `range` of the blocks.
bool ComesBack(const Scene& scene, const std::vector<uint32_t>& lost, ByteRange range,
               Random& random) {
  const ParityShape shape = scene.group.shape();
  const auto table = Table(shape.members);
  const uint64_t length = range.end - range.begin;
  for (uint32_t stripe = 0; stripe < shape.members; ++stripe) {
    const auto rebuild = StripeRebuild::Plan(shape, stripe, lost);
    if (!rebuild.ok() || rebuild->targets().size() != lost.size()) return false;
    std::vector<Memory> rebuilt(lost.size(), Memory(length));
    std::vector<std::span<std::byte>> spans(rebuilt.begin(), rebuilt.end());
    std::vector<size_t> order(rebuild->sources().size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t source : order) {
      const MemberBlock at = rebuild->sources()[source];
      if (table[stripe][at.member] != at.block) return false;
      if (std::find(lost.begin(), lost.end(), at.member) != lost.end()) return false;
      const auto stored = scene.Stored(at);
      const uint64_t begin = std::min<uint64_t>(range.begin, stored.size());
      rebuild->Add(source, stored.subspan(begin, std::min(stored.size() - begin, length)), spans);
    }
    std::set<uint32_t> members;
    for (size_t target = 0; target < lost.size(); ++target) {
      const MemberBlock at = rebuild->targets()[target];
      members.insert(at.member);
      if (table[stripe][at.member] != at.block) return false;
      const Memory whole = scene.Padded(at);
      if (!std::equal(rebuilt[target].begin(), rebuilt[target].end(),
                      whole.begin() + static_cast<std::ptrdiff_t>(range.begin))) {
        return false;
      }
    }
    if (members != std::set<uint32_t>(lost.begin(), lost.end())) return false;
  }
  return true;
}

std::vector<uint32_t> DrawLost(ParityShape shape, Random& random) {
  std::vector<uint32_t> lost(shape.members);
  std::iota(lost.begin(), lost.end(), 0U);
  std::shuffle(lost.begin(), lost.end(), random);
  lost.resize(shape.parity);
  return lost;
}

TEST_CASE("parity: shapes and sizes that no group can have are refused") {
  const auto message = [](ParityShape shape, uint64_t bytes) {
    const auto group = ParityGroup::Make(shape, bytes);
    if (group.ok()) return std::string("accepted");
    CHECK(group.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(group.status().message());
  };
  for (const ParityShape shape :
       {ParityShape{1, 0}, {2, 0}, {2, 1}, {8, 2}, {65, 3}, {128, 2}, {255, 254}}) {
    CHECK(message(shape, kMaxParityDataBytes) == "accepted");
  }
  for (const uint32_t members : {0U, 256U, 300U, ~0U}) {
    CHECK(message({members, 0}, 1).find("expected 1 to 255") != std::string::npos);
  }
  CHECK(message({1, 1}, 1).find("at most 0") != std::string::npos);
  CHECK(message({8, 8}, 1).find("at most 7") != std::string::npos);
  CHECK(message({8, ~0U}, 1).find("at most 7") != std::string::npos);
  CHECK(message({8, 2}, kMaxParityDataBytes + 1).find("281474976710656") != std::string::npos);
}

TEST_CASE("parity: a block is a data-th of the largest member, rounded up to whole pieces") {
  for (const ParityShape shape :
       {ParityShape{1, 0}, {2, 1}, {3, 1}, {8, 2}, {65, 3}, {128, 2}, {255, 2}, {255, 254}}) {
    const uint64_t k = shape.data();
    const uint64_t row = k * kPieceBytes;
    for (const uint64_t bytes :
         {uint64_t{0}, uint64_t{1}, uint64_t{65}, kPieceBytes - 1, kPieceBytes, kPieceBytes + 1,
          row - 1, row, row + 1, 1000 * row + 1, kMaxParityDataBytes}) {
      INFO(shape.members << " members, parity " << shape.parity << ", " << bytes << " bytes");
      const auto group = ParityGroup::Make(shape, bytes);
      REQUIRE(group.ok());
      const uint64_t block = group->block_bytes();
      CHECK(block % kPieceBytes == 0);
      CHECK(block * k >= bytes);
      CHECK((block == 0 ? bytes == 0 : (block - kPieceBytes) * k < bytes));
      CHECK(group->parity_bytes() == shape.parity * block);
      uint64_t stored = 0;
      for (uint32_t each = 0; each < shape.members; ++each) {
        const uint64_t here = group->StoredBytes(each, bytes);
        CHECK(here == (each < k ? std::min(block, bytes - stored) : block));
        if (each < k) stored += here;
      }
      CHECK(stored == bytes);
    }
  }
}

TEST_CASE("parity: each byte counts once at `parity` other members, and all are loaded evenly") {
  Random random(5);
  for (const ParityShape shape :
       {ParityShape{2, 1}, {3, 2}, {5, 2}, {8, 2}, {9, 3}, {65, 3}, {128, 2}, {255, 5}}) {
    INFO(shape.members << " members, parity " << shape.parity);
    const uint32_t k = shape.data();
    const auto group = ParityGroup::Make(shape, 2 * k * kPieceBytes);
    REQUIRE(group.ok());
    const uint64_t block = group->block_bytes();
    const auto table = Table(shape.members);
    // Of each data block and parity block: by whom and for whom.
    std::vector<std::set<uint32_t>> senders(k * shape.members), keepers(k * shape.members);
    bool right = true;
    for (uint32_t member = 0; member < shape.members; ++member) {
      uint64_t begin = Draw(random, 0, block / 2);
      const uint64_t end = k * block - Draw(random, 0, block / 2 - 1);
      const auto found = group->Contributions(member, {begin, end});
      CHECK(found.size() == size_t{k} * shape.parity);  // Each block is touched.
      for (size_t at = 0; at < found.size(); ++at) {
        const Contribution& each = found[at];
        const uint32_t data_block = static_cast<uint32_t>(at / shape.parity);
        const uint64_t stop = std::min(end, (data_block + 1) * block);
        right = right && each.data == MemberBlock{member, data_block} &&
                each.data_bytes.begin == begin && each.data_bytes.end == stop &&
                each.parity.block == k + at % shape.parity && each.parity.member != member &&
                each.parity_offset == (each.parity.block - k) * block + begin % block;
        for (const std::vector<uint32_t>& stripe : table) {
          right = right &&
                  (stripe[member] != data_block || stripe[each.parity.member] == each.parity.block);
        }
        senders[data_block * shape.members + each.parity.block].insert(member);
        keepers[data_block * shape.members + each.parity.block].insert(each.parity.member);
        if ((at + 1) % shape.parity == 0) begin = stop;
      }
      right = right && begin == end;
    }
    CHECK(right);
    for (uint32_t pair = 0; pair < k * shape.members; ++pair) {
      const size_t expected = pair % shape.members < k ? 0 : shape.members;
      right = right && senders[pair].size() == expected && keepers[pair].size() == expected;
    }
    CHECK(right);
  }
}

TEST_CASE("parity: ranges at the borders of blocks") {
  const auto group = ParityGroup::Make({5, 2}, 3 * kPieceBytes);
  REQUIRE(group.ok());
  const auto runs = [&](uint64_t begin, uint64_t end) {
    std::vector<std::array<uint64_t, 3>> found;
    for (const Contribution& each : group->Contributions(3, {begin, end})) {
      if (each.parity.block == 3)
        found.push_back({each.data.block, each.data_bytes.begin, each.data_bytes.end});
    }
    return found;
  };
  using Runs = std::vector<std::array<uint64_t, 3>>;
  constexpr uint64_t kPiece = kPieceBytes;
  CHECK(runs(0, 0).empty());
  CHECK(runs(kPiece, kPiece).empty());
  CHECK(runs(3 * kPiece, 3 * kPiece).empty());
  CHECK(runs(0, 1) == Runs{{0, 0, 1}});
  CHECK(runs(kPiece - 1, kPiece) == Runs{{0, kPiece - 1, kPiece}});
  CHECK(runs(kPiece, kPiece + 1) == Runs{{1, kPiece, kPiece + 1}});
  CHECK(runs(kPiece - 1, kPiece + 1) == Runs{{0, kPiece - 1, kPiece}, {1, kPiece, kPiece + 1}});
  CHECK(runs(3 * kPiece - 1, 3 * kPiece) == Runs{{2, 3 * kPiece - 1, 3 * kPiece}});
}

TEST_CASE("parity: whatever is lost of up to ten members comes back") {
  Random random(7);
  for (uint32_t members = 2; members <= 10; ++members) {
    for (uint32_t parity = 1; parity <= 3 && parity < members; ++parity) {
      INFO(members << " members, parity " << parity);
      const ParityShape shape{members, parity};
      Scene scene = MakeScene(shape, UnequalBytes(shape, random), random);
      scene.AddAll();
      CHECK(scene.parity == ExpectedParity(scene));
      for (uint32_t mask = 0; mask < 1U << members; ++mask) {
        std::vector<uint32_t> lost;
        for (uint32_t member = 0; member < members; ++member) {
          if ((mask >> member & 1U) != 0) lost.push_back(member);
        }
        if (lost.size() > parity) continue;
        std::shuffle(lost.begin(), lost.end(), random);
        INFO("lost, as bits: " << mask);
        const auto begin = static_cast<uint64_t>(Draw(random, 0, kPieceBytes - 1));
        const uint64_t end = std::min<uint64_t>(begin + Draw(random, 0, 3000), kPieceBytes);
        CHECK(ComesBack(scene, lost, {begin, end}, random));
        if (members <= 5) CHECK(ComesBack(scene, lost, {0, kPieceBytes}, random));
      }
    }
  }
}

TEST_CASE("parity: a stripe of a group of any size comes back") {
  Random random(11);
  constexpr size_t kLength = 40;
  for (const ParityShape shape :
       {ParityShape{3, 2}, {10, 9}, {33, 30}, {65, 3}, {128, 2}, {255, 3}, {255, 130}}) {
    INFO(shape.members << " members, parity " << shape.parity);
    // Of each of the code's blocks a piece, by the oracle; those of data end in zeros.
    std::vector<Memory> code(shape.members, Memory(kLength));
    std::vector<size_t> stored(shape.members, kLength);
    for (uint32_t d = 0; d < shape.data(); ++d) {
      stored[d] = Draw(random, 0, 2) == 0 ? Draw(random, 0, kLength) : kLength;
      Fill(random, std::span(code[d]).first(stored[d]));
      for (uint32_t p = shape.data(); p < shape.members; ++p) {
        const uint8_t coefficient = Generator(shape, p, d);
        for (size_t at = 0; at < stored[d]; ++at) {
          code[p][at] ^= std::byte{Product(coefficient, static_cast<uint8_t>(code[d][at]))};
        }
      }
    }
    for (int round = 0; round < 5; ++round) {
      const auto stripe = static_cast<uint32_t>(Draw(random, 0, shape.members - 1));
      const auto rebuild = StripeRebuild::Plan(shape, stripe, DrawLost(shape, random));
      REQUIRE(rebuild.ok());
      std::vector<Memory> rebuilt(shape.parity, Memory(kLength));
      std::vector<std::span<std::byte>> spans(rebuilt.begin(), rebuilt.end());
      for (size_t source = 0; source < rebuild->sources().size(); ++source) {
        const uint32_t block = rebuild->sources()[source].block;
        rebuild->Add(source, std::span(code[block]).first(stored[block]), spans);
      }
      for (size_t target = 0; target < spans.size(); ++target) {
        CHECK(rebuilt[target] == code[rebuild->targets()[target].block]);
      }
    }
  }
}

// Of the code's blocks that are left: whether Gauss's elimination finds all data.
bool Solvable(ParityShape shape, const std::vector<uint32_t>& left) {
  std::vector<std::vector<uint8_t>> rows;
  for (const uint32_t block : left) {
    rows.emplace_back();
    for (uint32_t d = 0; d < shape.data(); ++d) rows.back().push_back(Generator(shape, block, d));
  }
  for (size_t column = 0; column < shape.data(); ++column) {
    const auto pivot = std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(column), rows.end(),
                                    [&](const auto& row) { return row[column] != 0; });
    if (pivot == rows.end()) return false;
    std::swap(rows[column], *pivot);
    const uint8_t scale = Inverse(rows[column][column]);
    for (size_t row = column + 1; row < rows.size(); ++row) {
      const uint8_t factor = Product(rows[row][column], scale);
      for (size_t d = column; factor != 0 && d < shape.data(); ++d) {
        rows[row][d] ^= Product(factor, rows[column][d]);
      }
    }
  }
  return true;
}

TEST_CASE("parity: the document's matrix can be solved from any blocks that are left") {
  for (uint32_t members = 2; members <= 10; ++members) {
    for (uint32_t parity = 1; parity <= 3 && parity < members; ++parity) {
      const ParityShape shape{members, parity};
      for (uint32_t mask = 0; mask < 1U << members; ++mask) {
        std::vector<uint32_t> left;
        for (uint32_t block = 0; block < members; ++block) {
          if ((mask >> block & 1U) != 0) left.push_back(block);
        }
        if (left.size() == shape.data()) CHECK(Solvable(shape, left));
      }
    }
  }
}

TEST_CASE("parity: pieces in any order, and changes alone, give what all of the data gives") {
  Random random(13);
  for (const ParityShape shape : {ParityShape{2, 1}, {5, 2}, {8, 2}, {8, 3}}) {
    INFO(shape.members << " members, parity " << shape.parity);
    Scene scene = MakeScene(shape, UnequalBytes(shape, random), random);
    struct Piece {
      uint32_t member;
      ByteRange range;
    };
    std::vector<Piece> pieces;
    for (uint32_t member = 0; member < shape.members; ++member) {
      for (uint64_t begin = 0; begin < scene.bytes[member];) {
        const uint64_t end =
            std::min<uint64_t>(scene.bytes[member], begin + Draw(random, 1, 100000));
        pieces.push_back({member, {begin, end}});
        begin = end;
      }
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (const Piece& piece : pieces) {
      for (const Contribution& each : scene.group.Contributions(piece.member, piece.range)) {
        scene.group.Add(each, scene.Piece(each), scene.parity[each.parity.member]);
      }
    }
    CHECK(scene.parity == ExpectedParity(scene));

    for (const Piece& piece : pieces) {
      if (Draw(random, 0, 2) != 0) continue;
      const Memory old = scene.data[piece.member];
      Fill(random, std::span(scene.data[piece.member])
                       .subspan(piece.range.begin, piece.range.end - piece.range.begin));
      for (const Contribution& each : scene.group.Contributions(piece.member, piece.range)) {
        const auto now = scene.Piece(each);
        Memory change(now.begin(), now.end());
        for (size_t at = 0; at < change.size(); ++at) change[at] ^= old[each.data_bytes.begin + at];
        scene.group.Add(each, change, scene.parity[each.parity.member]);
      }
    }
    CHECK(scene.parity == ExpectedParity(scene));
  }
}

TEST_CASE("parity: of two members each keeps a copy of the other, and one alone keeps nothing") {
  Random random(17);
  Scene two = MakeScene({2, 1}, {kPieceBytes + 1, 65}, random);
  two.AddAll();
  CHECK(two.group.block_bytes() == 2 * kPieceBytes);
  CHECK(two.parity[0] == two.Padded({1, 0}));
  CHECK(two.parity[1] == two.Padded({0, 0}));

  Scene one = MakeScene({1, 0}, {100}, random);
  one.AddAll();
  CHECK(one.group.parity_bytes() == 0);
  CHECK(one.group.Contributions(0, {0, 100}).empty());
  CHECK(ComesBack(one, {}, {0, 100}, random));
}

TEST_CASE("parity: one parity block is the xor of its stripe") {
  Random random(19);
  Scene scene = MakeScene({4, 1}, {1000, 0, 3 * kPieceBytes, 70000}, random);
  scene.AddAll();
  for (const std::vector<uint32_t>& stripe : Table(4)) {
    Memory sum(scene.group.block_bytes());
    for (uint32_t member = 0; member < 4; ++member) {
      const Memory block = scene.Padded({member, stripe[member]});
      for (size_t at = 0; at < sum.size(); ++at) sum[at] ^= block[at];
    }
    CHECK(sum == Memory(scene.group.block_bytes()));
  }
}

TEST_CASE("parity: a sum changes its own bytes alone, whatever their number and place") {
  const auto group = ParityGroup::Make({5, 2}, 3 * kPieceBytes);
  REQUIRE(group.ok());
  Random random(23);
  Memory piece(400);
  Fill(random, piece);
  for (uint64_t length = 0; length <= 300; ++length) {
    const uint64_t begin = kPieceBytes + static_cast<uint64_t>(Draw(random, 0, 70));
    const uint64_t from = static_cast<uint64_t>(Draw(random, 0, 70));
    for (const Contribution& to : group->Contributions(2, {begin, begin + length})) {
      Memory parity(group->parity_bytes());
      Fill(random, parity);
      Memory expected = parity;
      group->Add(to, std::span(piece).subspan(from, length), parity);
      const uint8_t coefficient = Generator({5, 2}, to.parity.block, 1);
      for (uint64_t at = 0; at < length; ++at) {
        expected[to.parity_offset + at] ^=
            std::byte{Product(coefficient, static_cast<uint8_t>(piece[from + at]))};
      }
      REQUIRE(parity == expected);
    }
  }
}

TEST_CASE("parity: more lost members than parity are named") {
  const std::vector<uint32_t> lost{6, 1, 4};
  const auto rebuild = StripeRebuild::Plan({8, 2}, 0, lost);
  REQUIRE(!rebuild.ok());
  CHECK(rebuild.status().code() == absl::StatusCode::kDataLoss);
  CHECK(rebuild.status().message() ==
        "members 6, 1, 4 of a parity group of 8 are lost; its parity makes up for 2");
  CHECK(StripeRebuild::Plan({8, 3}, 0, lost).ok());
  CHECK(!StripeRebuild::Plan({1, 0}, 0, std::vector<uint32_t>{0}).ok());
}

TEST_CASE("parity: stored parity of version 1") {
  CHECK(kParityVersion == 1);
  const auto stored = nlohmann::json::parse(ReadAll(
      std::string(TRIREME_SOURCE_DIR) + "/tests/checkpoint/fixtures/parity_version_1.json"));
  for (const nlohmann::json& entry : stored["groups"]) {
    const ParityShape shape{entry["members"], entry["parity"]};
    INFO(shape.members << " members, parity " << shape.parity);
    Random random(29);
    Scene scene = MakeScene(shape, entry["bytes"].get<std::vector<uint64_t>>(), random);
    REQUIRE(scene.group.block_bytes() == entry["block_bytes"]);
    for (uint32_t member = 0; member < shape.members; ++member) {
      for (uint64_t x = 0; x < scene.bytes[member]; ++x) {
        scene.data[member][x] = static_cast<std::byte>((x * 7 + x / 251 + member * 31) % 256);
      }
    }
    scene.AddAll();
    for (uint32_t member = 0; member < shape.members; ++member) {
      INFO("parity of member " << member);
      CHECK(checksum::Crc32c(scene.parity[member]) == entry["crc32c"][member]);
    }
    // The coefficient of data block d in parity block p, by one byte of 1.
    for (uint32_t d = 0; d < shape.data(); ++d) {
      const uint64_t at = d * scene.group.block_bytes();
      for (const Contribution& to : scene.group.Contributions(0, {at, at + 1})) {
        Memory parity(scene.group.parity_bytes());
        scene.group.Add(to, std::array{std::byte{1}}, parity);
        CHECK(static_cast<int>(parity[to.parity_offset]) ==
              entry["matrix"][to.parity.block - shape.data()][d]);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::checkpoint
