// Random damage to the example jobs and configs: refused with a message or read, never a crash or
// an exception. A job that is read must echo to itself.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "runtime/spec/job_spec.h"
#include "tests/sanitizer.h"

namespace trireme::spec {
namespace {

const char* const kExamples = TRIREME_SOURCE_DIR "/deploy/examples";

std::vector<std::string> Texts(const std::string& extension) {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(kExamples)) {
    if (entry.path().extension() != extension) continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

// One to six edits; pieces that mean something to a parser are likelier than random bytes.
std::string Damage(std::string text, std::mt19937_64& random) {
  static const char* const kPieces[] = {":",
                                        ": ",
                                        "- ",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "\"",
                                        "'",
                                        "#",
                                        "&a ",
                                        "*a",
                                        "!",
                                        "!!x ",
                                        "|",
                                        ">",
                                        "%",
                                        "@",
                                        "`",
                                        "\t",
                                        "\n",
                                        "  ",
                                        "? ",
                                        "---\n",
                                        "~",
                                        "null",
                                        "NaN",
                                        ".inf",
                                        "-1",
                                        "1e999",
                                        "0x10",
                                        "1_0",
                                        "true",
                                        "\\",
                                        "\\x0",
                                        "...\n",
                                        ", ",
                                        "<<: ",
                                        "\r",
                                        "\xff",
                                        "\xc3\xa9",
                                        "\x01",
                                        "99999999999999999999"};
  const int edits = 1 + static_cast<int>(random() % 6);
  for (int i = 0; i < edits; ++i) {
    const size_t at = random() % (text.size() + 1);
    const size_t length = std::min<size_t>(random() % 12, text.size() - at);
    switch (random() % 5) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 3:
        text.insert(random() % (text.size() + 1), text.substr(at, 1 + random() % 60));
        break;
      default:
        text.replace(at, length, kPieces[random() % std::size(kPieces)]);
    }
  }
  return text;
}

TEST_CASE("20,000 damaged job files are refused with a message or read") {
  const std::vector<std::string> texts = Texts(".yaml");
  REQUIRE(texts.size() >= 8);
  std::mt19937_64 random(20260101);
  int read = 0;
  for (int i = 0; i < tests::Tries(20000); ++i) {
    const std::string text = Damage(texts[random() % texts.size()], random);
    const auto job = ParseJob(text, std::string(kExamples) + "/damaged.yaml", {});
    if (!job.ok()) {
      if (job.status().message().empty()) FAIL(text);
      continue;
    }
    if (++read % 10 != 0) continue;
    const auto again = ParseJob(ToYaml(*job), "/echo.yaml", {});
    if (!again.ok() || again->SerializeAsString() != job->SerializeAsString()) {
      FAIL(text << "\n" << again.status());
    }
  }
  // Damage in a comment or a number leaves a job; both outcomes must be common for the test to mean
  // anything.
  CHECK(read > tests::Tries(500));
  CHECK(read < tests::Tries(15000));
}

TEST_CASE("2,000 damaged config.json files are refused with a message or read") {
  const std::vector<std::string> texts = Texts(".json");
  REQUIRE(texts.size() >= 4);
  const std::string folder = std::string(TRIREME_BINARY_DIR) + "/spec_test_files";
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/damaged.json";
  std::mt19937_64 random(7);
  int read = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = Damage(texts[random() % texts.size()], random);
    std::ofstream(path, std::ios::binary) << text;
    const auto config = ReadModelConfig(path);
    if (!config.ok() && config.status().message().empty()) FAIL(text);
    read += config.ok();
  }
  CHECK(read > 20);
  CHECK(read < 1500);
}

TEST_CASE("5,000 damaged overrides are refused with a message or taken") {
  const std::string job = "model: {config: {model_type: gpt2}}\ndata: {text_files: [a]}\n";
  const std::vector<std::string> overrides = {
      "training.steps=10", "parallelism.layers_per_stage=[12]", "generation.prompt=\"a\\nb\"",
      "model.config={hidden_size: 768, bias: true}", "optimizer.learning_rate=1e-3"};
  std::mt19937_64 random(11);
  int taken = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::vector<std::string> one = {Damage(overrides[random() % overrides.size()], random)};
    const auto parsed = ParseJob(job, "/job.yaml", one);
    if (!parsed.ok() && parsed.status().message().empty()) FAIL(one[0]);
    taken += parsed.ok();
  }
  CHECK(taken > 50);
  CHECK(taken < 4000);
}

}  // namespace
}  // namespace trireme::spec
