// The yardstick, against counts done by hand.
#include "runtime/data/bigram.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/runtime/data/text_fixture.h"

namespace trireme::data {
namespace {

TEST_CASE("the bigram loss is that of counts by hand") {
  // Training "aabab", validation "abbaa": pairs aa 1, ab 2, ba 1; firsts a 3, b 1; V = 2.
  const TextFile file("aabababbaa");
  const auto dataset = OpenDataset(file.Options(2, 0.5));
  REQUIRE(dataset.ok());
  const double expected =
      -(std::log(3.0 / 5) + std::log(1.0 / 3) + std::log(2.0 / 3) + std::log(2.0 / 5)) / 4;
  CHECK(ByteBigramLoss(**dataset) == Approx(expected).epsilon(1e-14));
}

TEST_CASE("pairs across the blocks of the reading count once") {
  // Of period 3 over the byte vocabulary: each pair has n/3 counts, so the loss is that of one
  // (n/3+1)/(n/3+256).
  std::string text;
  for (int i = 0; i < 300003; ++i) text.push_back("xyz"[i % 3]);
  const TextFile file(text);
  DatasetOptions options = file.Options(2, 1.0 / 3);
  options.tokenizer = "byte";
  const auto dataset = OpenDataset(options);
  REQUIRE(dataset.ok());
  const double third = std::floor(static_cast<double>((*dataset)->tokens(Split::kTrain) - 1) / 3);
  CHECK(ByteBigramLoss(**dataset) == Approx(-std::log((third + 1) / (third + 256))).epsilon(1e-4));
}

TEST_CASE("without a validation split there is no loss") {
  const TextFile file("aabababbaa");
  CHECK(std::isnan(ByteBigramLoss(**OpenDataset(file.Options(2, 0)))));
}

}  // namespace
}  // namespace trireme::data
