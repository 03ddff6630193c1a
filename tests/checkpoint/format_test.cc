// The manifest's bytes: checksums, names, what is refused, mutants, and a stored old checkpoint.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "checkpoint/client/reader.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/checksum/crc32c.h"
#include "tests/checkpoint/sample_state.h"

namespace trireme::checkpoint {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_CASE("the piece table does not depend on how the bytes arrive") {
  Random random(2);
  for (size_t bytes : {0, 1, 65535, 65536, 65537, 200000}) {
    std::string data(bytes, '\0');
    for (char& byte : data) byte = static_cast<char>(random());
    PieceTable table;
    for (size_t at = 0; at < bytes;) {
      const size_t take = std::min<size_t>(bytes - at, Draw(random, 1, 90000));
      table.Append(Bytes(data).subspan(at, take));
      at += take;
    }
    std::vector<uint32_t> expected;
    for (size_t at = 0; at < bytes; at += kPieceBytes) {
      expected.push_back(checksum::Crc32c(Bytes(std::string_view(data).substr(at, kPieceBytes))));
    }
    CHECK(table.Finish() == expected);
    CHECK(expected.size() == PieceCount(bytes));
  }
}

TEST_CASE("names of folders, both ways") {
  CHECK(StepFolderName(1234) == "step-00001234");
  CHECK(PartialFolderName(123456789012) == ".step-123456789012.partial");
  CHECK(RankFileName(3) == "rank-003.safetensors");
  uint64_t step = 0;
  CHECK((ParseStepFolderName("step-00001234", &step) && step == 1234));
  CHECK((ParseStepFolderName("step-123456789012", &step) && step == 123456789012));
  CHECK((ParsePartialFolderName(".step-00000009.partial", &step) && step == 9));
  for (const char* name : {"step-", "step-1", "step-000000001", "step-0000123x", ".step-00001234",
                           "step-00001234.partial", "step-99999999999999999999", ""}) {
    CHECK_FALSE(ParseStepFolderName(name, &step));
    CHECK_FALSE(ParsePartialFolderName(name, &step));
  }
}

// One tensor of ten elements in two files.
Manifest Sample() {
  Manifest manifest;
  manifest.info = InfoOf(3, 2);
  manifest.files = {{"rank-000.safetensors", 100, {1}}, {"rank-001.safetensors", 65537, {2, 3}}};
  const layout::Box box = layout::Box::Whole({10});
  for (uint32_t file : {0, 1}) {
    manifest.shards.push_back({.name = "w",
                               .kind = "parameter",
                               .shape = {10},
                               .shard = {box, layout::SplitEvenly(10, 2, file)},
                               .file = file,
                               .key = "parameter/w"});
  }
  return manifest;
}

TEST_CASE("a manifest comes back from its text") {
  const auto text = FormatManifest(Sample());
  REQUIRE(text.ok());
  CHECK(nlohmann::json::parse(*text)["version"] == 1);  // The guard and the body are one JSON text.
  const auto back = ParseManifest(*text, "manifest.json");
  INFO(back.status().ToString());
  REQUIRE(back.ok());
  CHECK(*FormatManifest(*back) == *text);
  CHECK(back->shards[1].shard == Sample().shards[1].shard);
}

TEST_CASE("manifests that say what cannot be are refused by name") {
  const auto fault = [](const std::function<void(Manifest&)>& spoil) {
    Manifest manifest = Sample();
    spoil(manifest);
    const auto parsed = ParseManifest(*FormatManifest(manifest), "m.json");
    return parsed.ok() ? std::string("accepted") : parsed.status().ToString();
  };
  const auto says = [](const std::string& fault, const std::string& words) {
    INFO(fault);
    CHECK(fault.find("m.json") != std::string::npos);
    CHECK(fault.find(words) != std::string::npos);
  };
  for (const char* name : {"", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a..b"}) {
    says(fault([&](Manifest& m) { m.files[0].name = name; }), "not a plain name");
  }
  says(fault([](Manifest& m) { m.files[1].name = m.files[0].name; }), "listed twice");
  says(fault([](Manifest& m) { m.files[1].bytes = 65536; }), "2 checksums, expected 1");
  says(fault([](Manifest& m) { m.shards[1].file = 2; }), "file 2 of 2");
  says(fault([](Manifest& m) { m.shards[1].dtype = tensor::DType::kF64; }), "disagree");
  says(fault([](Manifest& m) { m.shards[1].shard.interval.end = 9; }), "9 of 10");
  says(fault([](Manifest& m) { m.shards[1].shard.interval.begin = 4; }), "parameter 'w'");
  says(fault([](Manifest& m) { m.shards[1].shard.interval.end = 11; }), "parameter 'w'");
  says(fault([](Manifest& m) { m.shards[0].kind = "a/b"; }), "no kind");
  says(fault([](Manifest& m) { m.shards.pop_back(); }), "5 of 10");
}

// The text with a right guard, so that what lies behind the guard is reached.
std::string Guard(std::string text) {
  constexpr size_t kRest = 22;
  if (text.size() <= kRest) return text;
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x",
                checksum::Crc32c(Bytes(std::string_view(text).substr(kRest))));
  const std::string_view start = "{\"crc32c\":\"";
  return std::string(start) + digits + "\",\n" + text.substr(kRest);
}

TEST_CASE("another version is told from damage") {
  std::string text = *FormatManifest(Sample());
  const size_t at = text.find("\"version\": 1");
  REQUIRE(at != std::string::npos);
  text[at + 11] = '2';
  CHECK(ParseManifest(text, "m").status().code() == absl::StatusCode::kDataLoss);
  const auto other = ParseManifest(Guard(text), "m").status();
  CHECK(other.code() == absl::StatusCode::kUnimplemented);
  CHECK(other.ToString().find("version 2") != std::string::npos);
}

TEST_CASE("mutants of the manifest never crash and never get past its guard") {
  const std::string seed = *FormatManifest(Sample());
  const std::string letters = "{}[]\",:0123456789-e.";
  Random random(19);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string mutant = seed;
    for (int64_t change = Draw(random, 0, 2); change >= 0; --change) {
      const size_t at = Draw(random, 0, mutant.size() - 1);
      switch (Draw(random, 0, 4)) {
        case 0:
          mutant[at] = static_cast<char>(random());
          break;
        case 1:
          mutant[at] = letters[Draw(random, 0, letters.size() - 1)];
          break;
        case 2:
          mutant.insert(at, 1, letters[Draw(random, 0, letters.size() - 1)]);
          break;
        case 3:
          mutant.erase(at, Draw(random, 1, 30));
          break;
        default:
          mutant.insert(at, mutant.substr(Draw(random, 0, mutant.size() - 1), 60));
          break;
      }
    }
    if (mutant != seed) REQUIRE_FALSE(ParseManifest(mutant, "m").ok());
    accepted += ParseManifest(Guard(mutant), "m").ok() ? 1 : 0;
    (void)ParseFragment(Guard(mutant), "m");
  }
  CHECK(accepted > 50);  // Texts in texts may change freely.
  CHECK(accepted < 2000);
}

TEST_CASE("a stored checkpoint of version 1 is read") {
  const std::string folder =
      std::string(TRIREME_SOURCE_DIR) + "/tests/checkpoint/fixtures/version_1/step-00000007";
  const auto opened = Open(folder);
  INFO(opened.status().ToString());
  REQUIRE(opened.ok());
  CHECK(Verify(folder).ok());
  CHECK(opened->info().step == 7);
  CHECK(opened->info().samples == 336);
  CHECK(opened->info().spec_hash == 0x0123456789abcdef);
  CHECK(opened->info().job_yaml == "model:\n  family: gpt2\n");
  CHECK(opened->info().scalars.at("loss_scale") == 1024.5);
  CHECK(!opened->info().data_digest.has_value());  // older than the field
  std::vector<float> column(4);
  std::vector<double> moment(12);
  const layout::Box whole = layout::Box::Whole({4, 3});
  const std::vector<StateShard> targets{{.name = "w",
                                         .kind = "parameter",
                                         .dtype = tensor::DType::kF32,
                                         .shape = {4, 3},
                                         .shard = layout::Shard::Whole({{{0, 4}, {2, 3}}}),
                                         .data = std::as_writable_bytes(std::span(column))},
                                        {.name = "w",
                                         .kind = "moment1",
                                         .dtype = tensor::DType::kF64,
                                         .shape = {4, 3},
                                         .shard = layout::Shard::Whole(whole),
                                         .data = std::as_writable_bytes(std::span(moment))}};
  REQUIRE(opened->Restore(targets).ok());
  CHECK(column == std::vector<float>{0, 1.5, 3, 4.5});
  for (int i = 0; i < 12; ++i) CHECK(moment[i] == i * 0.25);
}

}  // namespace
}  // namespace trireme::checkpoint
