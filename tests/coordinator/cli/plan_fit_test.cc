// `trireme plan --fit` from outside, and the sizes that it takes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "coordinator/cli/byte_size.h"
#include "tests/coordinator/cli/bench.h"

namespace trireme::cli {
namespace {

using nlohmann::json;

// Without the libraries' scratch, which is most of so small a job and which no change makes less.
const std::string kPlan =
    "plan job.yaml -n 2 --set runtime.kernels=reference --set training.micro_batch_size=2 "
    "--set training.global_batch_size=8 ";

json Answer(const Bench& bench, uint64_t bytes, int code) {
  const Result result = bench.Run(kPlan + "--json --fit " + std::to_string(bytes));
  CAPTURE(result.out);
  CHECK(result.code == code);
  return json::parse(result.out);
}

TEST_CASE("plan --fit names the smallest change, and with it the job fits") {
  const Bench bench;
  const uint64_t today = Answer(bench, uint64_t{1} << 40, 0)["choices"][0]["bytes"]["total"];
  const json report = Answer(bench, today - 1, 0);
  CHECK(report["limit_bytes"] == today - 1);
  CHECK(report["fits"] == true);
  CHECK(report["closest"].is_null());
  CHECK(report["missed_by_bytes"] == 0);
  const json& change = report["smallest_change"];
  CHECK(change["set"].size() == 1);
  CHECK(change["bytes"]["total"] < today);
  CHECK_FALSE(change["shrinks"].empty());
  const std::string options = report["options"];
  CHECK(options == "--set parallelism.zero_stage=1");
  const Result text = bench.Run(kPlan + "--fit " + std::to_string(today - 1));
  CHECK(text.code == 0);
  CHECK(Holds(text.out, "\nthe smallest change that fits "));
  CHECK(Holds(text.out, ":\n  " + options + "\n"));
  CHECK(Holds(text.out, "  as it is\n"));
  CHECK(Holds(text.out, "  recompute=full\n"));
  const Result changed = bench.Run(kPlan + options + " --fit " + std::to_string(today - 1));
  CHECK(changed.code == 0);
  CHECK(Holds(changed.out, "\nfits "));
  CHECK(Holds(changed.out, " a rank as it is\n"));
}

TEST_CASE("plan --fit ends with 3 where nothing fits, and says what misses") {
  const Bench bench;
  const json report = Answer(bench, 1, 3);
  CHECK(report["fits"] == false);
  CHECK(report["smallest_change"].is_null());
  CHECK(report["options"] == "");
  const uint64_t least = report["closest"]["bytes"]["total"];
  CHECK(report["missed_by_bytes"] == least - 1);
  for (const json& choice : report["choices"]) {
    CHECK(choice["bytes"]["total"] >= least);
    CHECK(choice["fits"] == false);
  }
  const Result text = bench.Run(kPlan + "--fit 1000");
  CHECK(text.code == 3);
  CHECK(Holds(text.out, "\nnothing fits 1000 B a rank: the best misses it by "));
  CHECK(Holds(text.out, "use more ranks"));
  for (const json& choice : report["choices"]) {
    if (choice["other_numerics"] == true) CHECK(choice["set"].contains("training.dtype"));
  }
}

TEST_CASE("plan --fit takes sizes with units and nothing else") {
  const Bench bench;
  CHECK(bench.Run(kPlan + "--fit 2GiB").code == 0);
  for (const char* size : {"''", "2G", "lots", "-1", "0", "2GiB --out p.pb", "2GiB --remote"}) {
    CAPTURE(size);
    CHECK(bench.Run(kPlan + "--fit " + size).code == 2);
  }
  CHECK(bench.Run(kPlan + "--fit 2G").out ==
        "trireme: --fit: \"2G\" is no size, expected 2GiB (powers of 1024) or 2GB (powers of "
        "1000)\n");
  CHECK(
      Holds(bench.Run("plan job.yaml -n 3 --set parallelism.tensor_parallel_size=2 --fit 1GB").out,
            "3 ranks cannot be cut"));
}

TEST_CASE("sizes as people write them") {
  const auto bytes = [](const char* text) { return ParseByteSize(text).value_or(0); };
  CHECK(bytes("2GiB") == uint64_t{2} << 30);
  CHECK(bytes("1500MB") == 1'500'000'000);
  CHECK(bytes("1.5 tib") == uint64_t{3} << 39);
  CHECK(bytes("123456789") == 123'456'789);
  CHECK(bytes("7B") == 7);
  CHECK(bytes("3kb") == 3000);
  CHECK(bytes("3KiB") == 3072);
  const auto refusal = [](const char* text) {
    return std::string(ParseByteSize(text).status().message());
  };
  for (const char* text : {"", "GiB", "1.2.3GB", "-1", "0", "0.4", "1e9", "nan", "9999999TiB"}) {
    CAPTURE(text);
    CHECK(Holds(refusal(text), "is no size, expected "));
  }
  CHECK(Holds(refusal("2GIBB"), "KiB, MiB, GiB or TiB, or KB, MB, GB or TB, behind 2"));
  CHECK(Holds(refusal("2m"), "2MiB (powers of 1024) or 2MB (powers of 1000)"));
}

// Of the table of bytes in an output.
size_t WidestRow(const std::string& out) {
  const size_t begin = out.find("bytes per choice, largest rank, in ");
  REQUIRE(begin != std::string::npos);
  std::istringstream lines(out.substr(begin));
  size_t widest = 0;
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    widest = std::max(widest, line.size());
  }
  return widest;
}

TEST_CASE("tables of bytes fit into 80 columns") {
  const Bench bench;
  // Of a size at which each number has its most digits.
  const std::string plan =
      "plan job.yaml -n 2 --set training.micro_batch_size=1024 "
      "--set training.global_batch_size=4096 --set model.config.vocab_size="
      "50000 --set parallelism.schedule=gpipe ";
  CHECK(WidestRow(bench.Run(plan).out) <= 80);
  for (const char* limit : {"--fit 1", "--fit 200MiB", "--fit 99GiB"}) {
    const Result fit = bench.Run(plan + limit);
    CAPTURE(fit.out);
    CHECK(WidestRow(fit.out) <= 80);
  }
}

TEST_CASE("plan shows the bytes of each choice") {
  const Bench bench;
  const std::string plan = bench.Run(kPlan).out;
  CAPTURE(plan);
  REQUIRE(Holds(plan, "\nbytes per choice, largest rank, in KiB\n"));
  for (const char* row : {"zero_stage=0 (job's)\n", "zero_stage=1\n", "recompute=none (job's)\n",
                          "recompute=full\n"}) {
    CHECK(Holds(plan, row));
  }
  // Those that offload to a file say how much, beside what counts as memory.
  CHECK(Holds(plan, " total "));
  CHECK(Holds(plan, " file choice\n"));
  // One replica has nothing to shard over.
  CHECK_FALSE(Holds(bench.Run("plan job.yaml -n 1").out, "zero_stage="));
}

}  // namespace
}  // namespace trireme::cli
