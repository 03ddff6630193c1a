// The sums of a piece: those of the format however they are added up, and each flipped bit is seen.
#include "runtime/checksum/lane_sums.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/checksum/crc32c.h"

namespace trireme::checksum {
namespace {

std::vector<std::byte> Pattern(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = std::byte((3 + 7 * i) % 251);
  return bytes;
}

// By the formula, term by term.
uint64_t SumByFormula(const std::vector<std::byte>& piece) {
  std::vector<uint32_t> words((piece.size() + 63) / 64 * 16);
  if (!piece.empty()) std::memcpy(words.data(), piece.data(), piece.size());
  const uint64_t rows = words.size() / 16;
  std::array<uint64_t, 16> a{}, b{};
  for (uint64_t i = 0; i < words.size(); ++i) {
    a[i % 16] += words[i];
    b[i % 16] += (rows - i / 16) * words[i];
  }
  return Crc32c(std::as_bytes(std::span(a))) | uint64_t{Crc32c(std::as_bytes(std::span(b)))} << 32;
}

}  // namespace

TEST_CASE("lane sums: the sum of a piece is that of the format, however it is added up") {
  for (const size_t count : {0, 1, 3, 4, 63, 64, 65, 1000, 4096, 65535, 65536}) {
    const std::vector<std::byte> piece = Pattern(count);
    const uint64_t sum = SumOfPiece(piece);
    CHECK(sum == SumByFormula(piece));
    for (size_t cut = 0; cut <= count; cut += 64 * 17) {
      LaneSums parts;
      AddRows(std::span(piece).first(cut), parts);
      AddRows(std::span(piece).subspan(cut), parts);
      CHECK(Folded(parts) == sum);
    }
  }
}

TEST_CASE("lane sums: runs of a piece are summed apart, wherever they are cut and in any order") {
  std::mt19937_64 random(5);
  for (const size_t count : {4, 60, 64, 68, 1000, 65536}) {
    const std::vector<std::byte> piece = Pattern(count);
    const size_t words = count / 4, rows = (words + 15) / 16;
    for (int round = 0; round < 50; ++round) {
      std::vector<size_t> cuts{0, words};
      for (size_t cut = random() % 9; cut > 0; --cut) cuts.push_back(random() % (words + 1));
      std::sort(cuts.begin(), cuts.end());
      std::vector<size_t> order(cuts.size() - 1);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      LaneSums all;
      for (const size_t at : order) {
        const size_t first = cuts[at], length = cuts[at + 1] - first;
        LaneSums run;
        AddRows(std::span(piece).subspan(4 * first, 4 * length), run);
        const RunPlace place{.first_word = first, .rows = (length + 15) / 16, .piece_rows = rows};
        round % 2 == 0 ? AddRun(run, place, all) : AddRunBesideOthers(run, place, all);
      }
      CHECK(Folded(all) == SumOfPiece(piece));
    }
  }
}

TEST_CASE("lane sums: every flipped bit, words that trade places, and lost rows change a sum") {
  std::vector<std::byte> piece = Pattern(64 * 40);
  const uint64_t sum = SumOfPiece(piece);
  for (size_t bit = 0; bit < piece.size() * 8; ++bit) {
    piece[bit / 8] ^= std::byte(1 << bit % 8);
    CHECK(SumOfPiece(piece) != sum);
    piece[bit / 8] ^= std::byte(1 << bit % 8);
  }
  // Errors that cancel in A: pairs of flips of one bit, up and down, and words x and -x that trade
  // places, any number of rows apart.
  const auto flip = [&](size_t row, uint32_t mask) {
    uint32_t word;
    std::memcpy(&word, piece.data() + 64 * row, 4);
    word ^= mask;
    std::memcpy(piece.data() + 64 * row, &word, 4);
  };
  for (size_t row = 1; row < 40; ++row) {
    for (int bit = 0; bit < 32; ++bit) {
      flip(0, 1u << bit);
      flip(row, 1u << bit);
      CHECK(SumOfPiece(piece) != sum);
      flip(0, 1u << bit);
      flip(row, 1u << bit);
    }
    std::vector<std::byte> signs = piece;
    for (const int32_t x : {1, 0x12345678, INT32_MIN + 1}) {
      const auto with = [&](int32_t first, int32_t second) {
        std::memcpy(signs.data(), &first, 4);
        std::memcpy(signs.data() + 64 * row, &second, 4);
        return SumOfPiece(signs);
      };
      CHECK(with(x, -x) != with(-x, x));
    }
  }
  std::vector<std::byte> moved = piece;
  std::swap_ranges(moved.begin() + 64, moved.begin() + 128, moved.begin() + 640);
  CHECK(SumOfPiece(moved) != sum);
  const std::vector<std::byte> zeros(64 * 40);
  CHECK(SumOfPiece(std::span(piece).first(64 * 39)) != sum);
  CHECK(SumOfPiece(zeros) == SumOfPiece(std::span(zeros).first(64)));  // as stated: A and B are 0
}

}  // namespace trireme::checksum
