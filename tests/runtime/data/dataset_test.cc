// Samples: splits, windows, orders, and the errors of bad input.
#include "runtime/data/dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "runtime/data/sample_order.h"
#include "runtime/data/text_file.h"
#include "tests/runtime/data/text_fixture.h"

namespace trireme::data {
namespace {

struct Sample {
  std::vector<int32_t> tokens, targets;
};

Sample Get(const Dataset& dataset, Split split, int64_t index) {
  const auto length = static_cast<size_t>(dataset.sequence_length());
  Sample sample{std::vector<int32_t>(length, -7), std::vector<int32_t>(length, -7)};
  dataset.Fill(split, index, sample.tokens, sample.targets);
  return sample;
}

// Byte i of the text is i, so that a token tells its position.
std::string Counting(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text.push_back(static_cast<char>(i));
  return text;
}

std::unique_ptr<Dataset> OpenCounting(int count, int64_t length, double validation,
                                      const std::string& order, uint64_t seed = 1) {
  const TextFile file(Counting(count));
  DatasetOptions options = file.Options(length, validation);
  options.tokenizer = "byte";
  options.order = order;
  options.seed = seed;
  auto dataset = OpenDataset(options);
  REQUIRE(dataset.ok());
  return std::move(*dataset);
}

std::string ErrorOf(const DatasetOptions& options) {
  const auto dataset = OpenDataset(options);
  REQUIRE_FALSE(dataset.ok());
  CHECK(VocabularyOf(options).status() == dataset.status());
  return std::string(dataset.status().message());
}

bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE(
    "the split is the first and the last part of the tokens, and targets are the next token") {
  const auto dataset = OpenCounting(100, 8, 0.25, "sequential");
  CHECK(dataset->tokens(Split::kTrain) == 75);
  CHECK(dataset->tokens(Split::kValidation) == 25);
  CHECK(dataset->samples(Split::kTrain) == 9);       // 74 targets in windows of 8
  CHECK(dataset->samples(Split::kValidation) == 3);  // 24 targets
  for (int64_t i = 0; i < 20; ++i) {
    const Sample sample = Get(*dataset, Split::kTrain, i);
    for (int32_t t = 0; t < 8; ++t) {
      CHECK(sample.tokens[t] == (i % 9) * 8 + t);
      CHECK(sample.targets[t] == sample.tokens[t] + 1);
    }
  }
}

TEST_CASE("validation counts every target once, with a padded last window") {
  for (int total : {40, 41, 47, 48, 49}) {
    const auto dataset = OpenCounting(total, 8, 0.5, "random");
    std::vector<int32_t> targets;
    for (int64_t i = 0; i < dataset->samples(Split::kValidation); ++i) {
      const Sample sample = Get(*dataset, Split::kValidation, i);
      bool padded = false;
      for (size_t t = 0; t < 8; ++t) {
        padded = padded || sample.targets[t] == -1;
        if (padded) {
          CHECK((sample.tokens[t] == 0 && sample.targets[t] == -1));
        } else {
          CHECK(sample.targets[t] == sample.tokens[t] + 1);
          targets.push_back(sample.targets[t]);
        }
      }
    }
    std::vector<int32_t> expected;
    for (int32_t i = total / 2 + 1; i < total; ++i) expected.push_back(i);
    CHECK(targets == expected);
  }
}

TEST_CASE("random starts reach every position and follow the seed alone") {
  const auto first = OpenCounting(60, 8, 0.5, "random", 7);
  const auto again = OpenCounting(60, 8, 0.5, "random", 7);
  const auto other = OpenCounting(60, 8, 0.5, "random", 8);
  std::vector<int> hits(22, 0);
  int equal = 0;
  for (int64_t i = 0; i < 2200; ++i) {
    const Sample sample = Get(*first, Split::kTrain, i);
    REQUIRE(sample.tokens[0] <= 21);  // 30 tokens: the last target is token 29
    REQUIRE(sample.targets[7] == sample.tokens[0] + 8);
    ++hits[static_cast<size_t>(sample.tokens[0])];
    REQUIRE(Get(*again, Split::kTrain, i).tokens == sample.tokens);
    equal += Get(*other, Split::kTrain, i).tokens == sample.tokens;
  }
  // Binomial(2200, 1/22): 100 +- 9.8; five deviations.
  CHECK(*std::min_element(hits.begin(), hits.end()) > 51);
  CHECK(*std::max_element(hits.begin(), hits.end()) < 149);
  CHECK(equal < 149);
}

TEST_CASE("an epoch of shuffled samples holds each window once, each epoch in another order") {
  const auto dataset = OpenCounting(240, 4, 0.1, "shuffled", 3);
  const int64_t windows = dataset->samples(Split::kTrain);
  REQUIRE(windows == 53);
  std::set<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int32_t> starts;
    for (int64_t i = 0; i < windows; ++i) {
      starts.push_back(Get(*dataset, Split::kTrain, epoch * windows + i).tokens[0]);
    }
    CHECK_FALSE(std::is_sorted(starts.begin(), starts.end()));
    orders.insert(starts);
    std::sort(starts.begin(), starts.end());
    for (int64_t i = 0; i < windows; ++i) CHECK(starts[static_cast<size_t>(i)] == 4 * i);
  }
  CHECK(orders.size() == 5);
}

TEST_CASE("the permutation is one for every size") {
  for (uint64_t size = 1; size < 300; ++size) {
    std::vector<bool> seen(size, false);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t to = PermuteIndex(i, size, 5, size % 3);
      REQUIRE((to < size && !seen[to]));
      seen[to] = true;
    }
  }
  std::set<uint64_t> large;
  const uint64_t size = (uint64_t{1} << 40) + 7;
  for (uint64_t i = 0; i < 2000; ++i) large.insert(PermuteIndex(size - 1 - i, size, 5, 0));
  CHECK(large.size() == 2000);
  CHECK(*large.rbegin() < size);
  // A uniform draw leaves a quarter empty with probability (3/4)^2000.
  CHECK(*large.begin() < size / 4);
  CHECK(*large.rbegin() > 3 * (size / 4));
}

TEST_CASE("what a seed means does not change") {
  CHECK(SampleOrder{Order::kRandom, 1, 1000000, 64}.Start(0) == 134714);
  CHECK(SampleOrder{Order::kShuffled, 1, 1000000, 64}.Start(0) == 605184);
}

TEST_CASE("files are joined, and characters may straddle what is read at once") {
  std::string text(size_t{1} << 20, 'a');
  text.back() = '\xE2';  // the euro sign begins on the last byte of the first chunk
  text += "\x82\xAC";
  const TextFile first(text), second("b");
  DatasetOptions options = first.Options(4, 0);
  options.text_files.push_back(second.path());
  const auto dataset = OpenDataset(options);
  REQUIRE(dataset.ok());
  CHECK((*dataset)->tokenizer().vocab_size() == 3);
  const int64_t tokens = (*dataset)->tokens(Split::kTrain);
  CHECK(tokens == (1 << 20) + 1);
  CHECK((*dataset)->samples(Split::kValidation) == 0);
  std::vector<int32_t> end(3);
  (*dataset)->Read(Split::kTrain, tokens - 3, end);
  CHECK(end == std::vector<int32_t>{0, 2, 1});
}

TEST_CASE("large vocabularies keep their ids") {
  std::string text;
  for (uint32_t c = 0x4E00; c < 0x4E00 + 300; ++c) {
    text += {static_cast<char>(0xE0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 0x3F)),
             static_cast<char>(0x80 | (c & 0x3F))};
  }
  const TextFile file(text);
  const auto dataset = OpenDataset(file.Options(299, 0));
  REQUIRE(dataset.ok());
  const Sample sample = Get(**dataset, Split::kTrain, 0);
  for (int32_t t = 0; t < 299; ++t) CHECK(sample.targets[static_cast<size_t>(t)] == t + 1);
}

TEST_CASE("a text file that its disk does not give is no bad input") {
  // A regular file whose first byte the system refuses with EIO.
  DatasetOptions broken;
  broken.text_files = {"/proc/self/mem"};
  broken.sequence_length = 4;
  const absl::Status refused = OpenDataset(broken).status();
  INFO(refused.ToString());
  CHECK(refused.code() == absl::StatusCode::kUnavailable);
  CHECK(refused.message().find("/proc/self/mem") != std::string::npos);
  for (const int disk : {EIO, ESTALE, EACCES, EPERM, ENOTCONN, ETIMEDOUT, EMFILE, ENFILE}) {
    INFO(std::strerror(disk));
    CHECK(absl::IsUnavailable(FileError("/srv/text", disk)));
  }
  // The path is wrong on every node.
  CHECK(absl::IsNotFound(FileError("/srv/text", ENOENT)));
  for (const int path : {ELOOP, EINVAL, ENAMETOOLONG, ENOTDIR}) {
    INFO(std::strerror(path));
    CHECK(absl::IsFailedPrecondition(FileError("/srv/text", path)));
  }
}

TEST_CASE("bad input says what, where and what to do") {
  const TextFile good("some text that is long enough"), empty(""), small("abcdefghij");
  const TextFile invalid("0123456789\xFFmore"), cut("0123456789\xC3");

  DatasetOptions missing = good.Options(4);
  missing.text_files.push_back("/nonexistent/file.txt");
  CHECK(Holds(ErrorOf(missing), "/nonexistent/file.txt: No such file"));
  missing.text_files.back() = "nowhere/file.txt";
  CHECK(Holds(ErrorOf(missing),
              std::filesystem::current_path().string() + "/nowhere/file.txt: No such file"));
  CHECK(Holds(ErrorOf(missing), "those of --set from the current one"));
  CHECK(Holds(ErrorOf(empty.Options(4)), empty.path() + " is empty"));
  CHECK(Holds(ErrorOf(small.Options(9, 0.1)),
              "10 tokens, of which 9 are for training, but one sample needs 10"));
  CHECK(OpenDataset(small.Options(8, 0.1)).status().message().find("validation") !=
        std::string::npos);
  CHECK(OpenDataset(small.Options(7, 0.2)).ok());
  CHECK(Holds(ErrorOf(invalid.Options(4)), invalid.path() + ": invalid UTF-8 at byte 10"));
  CHECK(Holds(ErrorOf(cut.Options(4)), "inside a UTF-8 character at byte 10"));
  DatasetOptions bytes = invalid.Options(4);
  bytes.tokenizer = "byte";
  CHECK(OpenDataset(bytes).ok());

  DatasetOptions options = good.Options(4);
  options.order = "sorted";
  CHECK(Holds(ErrorOf(options), "data.order: \"sorted\""));
  options = good.Options(4);
  options.tokenizer = "bpe";
  CHECK(Holds(ErrorOf(options), "data.tokenizer: \"bpe\""));
  CHECK(Holds(ErrorOf(good.Options(0)), "data.sequence_length: 0"));
  CHECK(Holds(ErrorOf(good.Options(4, 1.0)), "data.validation_fraction: 1"));
  options.text_files = {"/tmp"};
  options.tokenizer = "char";
  CHECK(Holds(ErrorOf(options), "/tmp is a folder, expected a regular file"));
  options.text_files = {"/dev/zero"};  // endless
  CHECK(Holds(ErrorOf(options), "/dev/zero is a pipe, device or socket"));
  const std::string pipe = good.path() + ".pipe";  // without a writer
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  options.text_files = {pipe};
  CHECK(Holds(ErrorOf(options), "is a pipe, device or socket"));
  unlink(pipe.c_str());
  options.text_files.clear();
  CHECK(Holds(ErrorOf(options), "data.text_files is empty"));
}

}  // namespace
}  // namespace trireme::data
