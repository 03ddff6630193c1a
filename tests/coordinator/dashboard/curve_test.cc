// Curves: what ranks write while it is read, whole lines alone, files of any length and content.
#include "coordinator/dashboard/curve.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <random>

#include "tests/coordinator/dashboard/run_folder.h"

namespace trireme::dashboard {
namespace {

constexpr char kName[] = "metrics.jsonl";

Json Ask(const RunFolder& folder, const CurveRequest& request = {},
         const std::string& version = "1") {
  const int fd = open((folder / kName).c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  return CurveJson(RunFile(fd), version, request);
}

CurveRequest After(const Json& answer) {
  return {answer["file"].get<std::string>(), answer["offset"].get<int64_t>()};
}

std::string Line(int step, double loss) {
  return fmt::format("{{\"step\":{},\"loss\":{},\"tokens_per_second\":100.5}}\n", step, loss);
}

}  // namespace

TEST_CASE("a curve goes on where the last answer ended") {
  const RunFolder folder;
  folder.Write(kName, Line(1, 3) + Line(2, 2.5) + "{\"step\":2,\"validation_loss\":2.75}\n" +
                          "{\"step\":3,\"lo");
  const Json first = Ask(folder);
  CHECK(first["reset"] == true);
  CHECK(first["step"] == Json({1, 2}));
  CHECK(first["loss"] == Json({3, 2.5}));
  CHECK(first["tokens_per_second"] == Json({100.5, 100.5}));
  CHECK(first["gradient_norm"] == Json({nullptr, nullptr}));
  CHECK(first["validation"] == Json({{2, 2.75}}));
  folder.Append(kName, "ss\":2.25}\n");
  const Json second = Ask(folder, After(first));
  CHECK(second["reset"] == false);
  CHECK(second["step"] == Json({3}));
  CHECK(second["loss"] == Json({2.25}));
  CHECK(second["offset"] == second["size"]);
  CHECK(Ask(folder, After(second))["step"].empty());
}

TEST_CASE("another attempt or another file is read from the beginning") {
  const RunFolder folder;
  folder.Write(kName, Line(1, 3) + Line(2, 2));
  const Json first = Ask(folder);
  const Json again = Ask(folder, After(first), "2");
  CHECK(again["reset"] == true);
  CHECK(again["step"].size() == 2);
  // A resumed run writes the file anew and renames it.
  folder.Write("other", Line(1, 3) + Line(2, 2) + Line(3, 1));
  std::filesystem::rename(folder / "other", folder / kName);
  const Json replaced = Ask(folder, After(first));
  CHECK(replaced["reset"] == true);
  CHECK(replaced["step"].size() == 3);
  // Offsets that no answer has given.
  CurveRequest beyond = After(replaced);
  for (const int64_t offset : {int64_t{-1}, int64_t{1} << 62}) {
    beyond.offset = offset;
    CHECK(Ask(folder, beyond)["step"].size() == 3);
  }
}

TEST_CASE("lines that are no metrics are passed over") {
  const RunFolder folder;
  const std::string deep(5000, '[');
  folder.Write(kName, "\n[]\n{}\nnull\n{\"step\":\"x\"}\n{\"step\":{}}\n\xff\xfe\n" + deep + "\n" +
                          std::string(100000, 'x') + "\n{\"step\":4,\"loss\":null}\n" +
                          "{\"step\":5,\"loss\":\"high\"}\n{\"step\":6,\"validation_loss\":[]}\n" +
                          Line(7, 1) + Line(3, 9) + Line(8, 2));
  const Json answer = Ask(folder);
  // Steps ascend: a step that comes again begins anew from there.
  CHECK(answer["step"] == Json({3, 8}));
  CHECK(answer["loss"] == Json({9, 2}));
  CHECK(answer["validation"].empty());
}

TEST_CASE("a long file is sampled over its whole length") {
  const RunFolder folder;
  std::string text;
  constexpr int kSteps = 100000;
  for (int step = 1; step <= kSteps; ++step) {
    text += Line(step, 1.0 / step);
    if (step % 1000 == 0) text += fmt::format("{{\"step\":{},\"validation_loss\":2}}\n", step);
  }
  folder.Write(kName, text + "{\"step\":");
  const Json answer = Ask(folder);
  const auto steps = answer["step"].get<std::vector<double>>();
  REQUIRE(steps.size() <= 2000);
  CHECK(steps.size() > 1500);
  CHECK(steps.front() == 1);
  CHECK(steps.back() == kSteps);
  CHECK(std::is_sorted(steps.begin(), steps.end()));
  double widest = 0;
  for (size_t i = 1; i < steps.size(); ++i) widest = std::max(widest, steps[i] - steps[i - 1]);
  CHECK(widest < kSteps / 500.0);
  CHECK(answer["offset"] == text.size());
  folder.Append(kName, "100001,\"loss\":7}\n");
  const Json next = Ask(folder, After(answer));
  CHECK(next["step"] == Json({kSteps + 1}));
  CHECK(next["loss"] == Json({7}));
}

TEST_CASE("a long file of anything is read to its end") {
  const RunFolder folder;
  std::mt19937 random(5);
  for (const char* letters : {"{}\":1,", "x", "\n", "{\"step\":1}\n"}) {
    const std::string alphabet = letters;
    std::string text;
    while (text.size() < (3U << 20)) text += alphabet[random() % alphabet.size()];
    folder.Write(kName, text);
    const Json answer = Ask(folder);
    CHECK(answer["step"].size() <= 2000);
    CHECK(answer["offset"] <= answer["size"]);
    CHECK(answer["offset"].get<int64_t>() > answer["size"].get<int64_t>() - 70000);
  }
}

TEST_CASE("a step that is not finite leaves a hole") {
  const RunFolder folder;
  folder.Write(kName, Line(1, 3) + "{\"step\":2,\"loss\":null,\"tokens_per_second\":7}\n" +
                          "{\"step\":3,\"loss\":1e999}\n");
  const Json answer = Ask(folder);
  CHECK(answer["loss"][1].is_null());
  CHECK(answer["tokens_per_second"][1] == 7);
  CHECK_NOTHROW(Parsed(JsonText(answer)));
}

}  // namespace trireme::dashboard
