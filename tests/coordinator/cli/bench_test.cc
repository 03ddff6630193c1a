// `trireme bench`: what it takes, and the table that its worker makes.
#include "tests/coordinator/cli/bench.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace trireme::cli {
namespace {

void PlayWorker(const Bench& bench, const std::string& script) {
  std::ofstream(bench.folder() + "/trireme-worker") << "#!/bin/sh\n" << script;
  chmod((bench.folder() + "/trireme-worker").c_str(), 0755);
}

}  // namespace

TEST_CASE("bench: its options reach the worker, and the worker's exit code the caller") {
  const Bench bench;
  PlayWorker(bench, "for word; do echo \"[$word]\"; done; exit 3\n");
  const Result plain = bench.Run("bench");
  CHECK(plain.code == 3);
  CHECK(plain.out == "[bench]\n[--dtype=both]\n[--threads=0]\n[--seconds=50]\n");
  const Result all =
      bench.Run("bench --dtype bf16 --threads 2 --seconds 9 --only 'layer norm' --json");
  CHECK(all.out ==
        "[bench]\n[--dtype=bf16]\n[--threads=2]\n[--seconds=9]\n[--only=layer norm]\n[--json]\n");
}

TEST_CASE("bench: bad options, and no worker") {
  const Bench bench;
  CHECK(bench.Run("bench --dtype f16").code == 2);
  CHECK(Holds(bench.Run("bench --dtype f16").out, "f16 not in {f32,bf16,both}"));
  CHECK(bench.Run("bench --seconds 0").code == 2);
  CHECK(bench.Run("bench --threads 0").code == 2);
  CHECK(Holds(bench.Run("bench --thread 2").out, "did you mean --threads?"));
  const Result alone = bench.Run("bench");
  CHECK(alone.code == 1);
  CHECK(Holds(alone.out, "trireme: cannot start "));
  CHECK(Holds(alone.out, "No such file or directory"));
}

// With the kernels: both dtypes of the asked operators, each beside a limit.
TEST_CASE("bench: a part of the real table") {
  const Bench bench;
  std::filesystem::create_symlink(Program() + "-worker", bench.folder() + "/trireme-worker");
  const Result json = bench.Run("bench --only 'layer norm' --seconds 1 --threads 1 --json");
  REQUIRE(json.code == 0);
  const auto table = nlohmann::json::parse(json.out);
  CHECK(table["threads"] == 1);
  CHECK(table["seconds"].get<double>() > 0);
  CHECK(table["memory_gbytes_per_second"].get<double>() > 0);
  REQUIRE(table["groups"].size() == 2);
  for (const auto& group : table["groups"]) {
    REQUIRE(group["operators"].size() == 3);
    for (const auto& row : group["operators"]) CHECK(row["ratio"].get<double>() > 0);
  }
  CHECK(table["groups"][0]["operators"][1]["name"] == "layer norm I");
  const Result none = bench.Run("bench --only moon");
  CHECK(none.code == 2);
  CHECK(none.out.find("trireme: no operator has \"moon\" in its name") == 0);
}

}  // namespace trireme::cli
