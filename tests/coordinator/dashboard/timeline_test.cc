// The last step of the ranks: what is there of it is drawn, whatever else the files hold.
#include "coordinator/dashboard/timeline.h"

#include <fmt/format.h>

#include <map>
#include <random>

#include "tests/coordinator/dashboard/run_folder.h"

namespace trireme::dashboard {
namespace {

std::string File(int rank, uint64_t step, int64_t start_ns, int spans = 1) {
  std::string text = fmt::format("step {} rank {}\n", step, rank);
  for (int64_t i = 0; i < spans; ++i) {
    text += fmt::format("i {} 2 0 {} {} {}\n", step, i, start_ns + i * 2000000,
                        start_ns + i * 2000000 + (i + 1) * 1000);
  }
  return text;
}

}  // namespace

TEST_CASE("instructions and transfers of a rank are understood") {
  const auto timeline = ParseTimeline(
      "step 12 rank 3\n"
      "m 2000 3000\n"
      "i 12 2 0 1 5038123411 5038181034\n"
      "c 12 6 1 4 5038181034 5038190001 3 2 0\n",
      3);
  REQUIRE(timeline.has_value());
  CHECK(timeline->step == 12);
  CHECK(timeline->resident_bytes == 2000);
  CHECK(timeline->peak_bytes == 3000);
  REQUIRE(timeline->spans.size() == 2);
  CHECK(timeline->spans[0].kind == 2);
  CHECK(timeline->spans[0].micro_batch == 1);
  CHECK(timeline->spans[1].what == 'c');
  CHECK(timeline->spans[1].virtual_stage == 1);
  CHECK(timeline->spans[1].group == 3);
  CHECK(timeline->spans[1].peer == 2);
  const Json json = TimelineJson({*timeline}, 4);
  CHECK(json["step"] == 12);
  CHECK(json["ranks_of_job"] == 4);
  CHECK(json["length_us"] == 66);
  CHECK(json["ranks"][0]["spans"] == Json({{2, 0, 1, 0, 57}}));
  CHECK(json["ranks"][0]["transfers"] == Json({{6, 1, 4, 57, 9, 3, 2}}));
}

TEST_CASE("files of others, broken lines and impossible times are passed over") {
  CHECK_FALSE(ParseTimeline("", 0));
  CHECK_FALSE(ParseTimeline("step 12 rank 3", 3));
  CHECK_FALSE(ParseTimeline("step 12 rank 4\n", 3));
  CHECK_FALSE(ParseTimeline("step x rank 3\n", 3));
  CHECK_FALSE(ParseTimeline("step -1 rank 3\n", 3));
  const auto timeline = ParseTimeline(
      "step 7 rank 0\n\n"
      "i 8 2 0 0 1 2\n"   // of another step
      "i 7 99 0 0 1 2\n"  // no such kind
      "i 7 2 -1 0 1 2\n"  // no such virtual stage
      "i 7 2 0 0 5 4\n"   // ends before it starts
      "i 7 2 0 0 9223372036854775807 9223372036854775807\n"
      "i 7 2 0 0 1 99999999999999999999\n"
      "m 5\n"
      "m -1 7\n"
      "q 7 2 0 0 1 2\n"
      "c 7 6 0 0 1 2\n"  // without group and peer
      "i 7 2 0 0 1 2x\n"
      "i 7 2 0 0 -5 20 and more\n"
      "i 7 2 0 0 30 40",  // not whole yet
      0);
  REQUIRE(timeline.has_value());
  REQUIRE(timeline->spans.size() == 1);
  CHECK(timeline->spans[0].start_ns == -5);
  CHECK(timeline->peak_bytes == 0);
}

TEST_CASE("the step that most ranks are at is drawn") {
  std::vector<RankTimeline> ranks;
  for (const auto& [rank, step] : std::map<int, uint64_t>{{0, 9}, {1, 10}, {2, 10}, {3, 11}}) {
    ranks.push_back(*ParseTimeline(File(rank, step, 1000000 * rank), rank));
  }
  const Json json = TimelineJson(ranks, 4);
  CHECK(json["step"] == 10);
  CHECK(json["ranks"][0]["spans"].empty());
  CHECK(json["ranks"][0]["step"] == 9);
  CHECK(json["ranks"][1]["spans"][0][3] == 0);
  CHECK(json["ranks"][2]["spans"][0][3] == 1000);
  CHECK(json["length_us"] == 1001);
  ranks.pop_back();
  ranks.pop_back();
  CHECK(TimelineJson(ranks, 4)["step"] == 10);  // the newer of two
  CHECK(TimelineJson({}, 4)["step"].is_null());
}

TEST_CASE("ranks whose clocks cannot be right are not drawn") {
  std::vector<RankTimeline> ranks = {*ParseTimeline(File(0, 3, 0), 0),
                                     *ParseTimeline(File(1, 3, int64_t{1} << 59), 1)};
  const Json json = TimelineJson(ranks, 2);
  CHECK(json["length_us"] == 0);
  CHECK(json["ranks"][0]["spans"].empty());
}

TEST_CASE("of more than fit into an answer the longest are kept") {
  std::vector<RankTimeline> ranks;
  for (int rank = 0; rank < 10; ++rank)
    ranks.push_back(*ParseTimeline(File(rank, 1, 0, 9000), rank));
  const Json json = TimelineJson(ranks, 10);
  const Json& spans = json["ranks"][9]["spans"];
  REQUIRE(spans.size() == 4000);
  CHECK(spans[0][2] == 5000);  // micro-batch: longer with each
  CHECK(spans[3999][2] == 8999);
}

TEST_CASE("a bounded number of files is read, each to a bound") {
  int reads = 0;
  size_t most = 0;
  const auto ranks = ReadTimelines(3072, [&](const std::string& name, size_t most_bytes) {
    ++reads;
    most = std::max(most, most_bytes);
    return name == "timeline/rank-3071.steps" ? File(3071, 5, 0) : std::string();
  });
  CHECK(reads == 64);
  CHECK(most <= (1U << 20));
  REQUIRE(ranks.size() == 1);
  CHECK(ranks[0].rank == 3071);
}

TEST_CASE("no bytes make it fall over") {
  std::mt19937 random(11);
  const std::string good = File(0, 4, 12345, 20);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int change = 0; change < 4; ++change) {
      const size_t at = random() % text.size();
      text[at] =
          random() % 2 == 0 ? static_cast<char>(random()) : " 0123456789-ic\n"[random() % 16];
    }
    const auto timeline = ParseTimeline(text, 0);
    if (timeline) CHECK_NOTHROW(JsonText(TimelineJson({*timeline}, 1)));
  }
}

}  // namespace trireme::dashboard
