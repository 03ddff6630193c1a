// Every file of tests/data/broken_jobs is refused with exactly the faults that its leading comments
// expect:
//   # expect: PLACE: FRAGMENT | FRAGMENT ...   one fault; PLACE is a line of this file, 0 (the
//   whole file), FILE:LINE of
//                                              another file, or "--set a.b=c"
//   # set: a.b=c                               an override to load it with
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/spec/job_spec.h"

namespace trireme::spec {
namespace {

struct Expected {
  std::string prefix;  // how the line of the fault begins
  std::vector<std::string> fragments;
};

struct BrokenJob {
  std::string path;
  std::vector<Expected> expected;
  std::vector<std::string> overrides;
};

// The prefix of a fault line at `place` of the job at `path`; other files stay as FILE:LINE, to be
// found behind a folder.
std::string PrefixOf(const std::string& path, const std::string& place) {
  if (place == "0") return path + ": ";
  const bool own_line =
      std::all_of(place.begin(), place.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
  return own_line ? absl::StrCat(path, ":", place, ": ") : place + ": ";
}

BrokenJob ReadBrokenJob(const std::string& path) {
  BrokenJob job;
  job.path = path;
  std::ifstream stream(path);
  const std::string expect = "# expect: ";
  const std::string set = "# set: ";
  for (std::string line; std::getline(stream, line);) {
    if (absl::StartsWith(line, set)) {
      job.overrides.push_back(line.substr(set.size()));
    } else if (absl::StartsWith(line, expect)) {
      const std::string rest = line.substr(expect.size());
      const size_t cut = rest.find(": ");
      REQUIRE(cut != std::string::npos);
      Expected one;
      one.prefix = PrefixOf(path, rest.substr(0, cut));
      one.fragments = absl::StrSplit(rest.substr(cut + 2), " | ");
      job.expected.push_back(std::move(one));
    } else {
      break;
    }
  }
  return job;
}

bool Matches(const std::string& line, const Expected& expected) {
  const size_t at = line.find(expected.prefix);
  if (at == std::string::npos || (at > 0 && line[at - 1] != '/')) return false;
  return std::all_of(
      expected.fragments.begin(), expected.fragments.end(),
      [&](const std::string& fragment) { return absl::StrContains(line, fragment); });
}

TEST_CASE("each broken job is refused with the faults it expects, all and only those") {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(TRIREME_SOURCE_DIR "/tests/data/broken_jobs")) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  CHECK(paths.size() >= 30);
  for (const std::string& path : paths) {
    const BrokenJob job = ReadBrokenJob(path);
    const auto loaded = LoadJob(path, job.overrides);
    INFO(path << "\n" << loaded.status().message());
    CHECK(!job.expected.empty());
    if (loaded.ok()) {
      FAIL_CHECK("loaded");
      continue;
    }
    CHECK(loaded.status().code() == absl::StatusCode::kInvalidArgument);
    const std::vector<std::string> lines = absl::StrSplit(loaded.status().message(), '\n');
    CHECK(lines.size() == job.expected.size());
    for (const Expected& expected : job.expected) {
      INFO("expected " << expected.prefix << " " << expected.fragments.front());
      CHECK(std::count_if(lines.begin(), lines.end(),
                          [&](const std::string& line) { return Matches(line, expected); }) == 1);
    }
  }
}

}  // namespace
}  // namespace trireme::spec
