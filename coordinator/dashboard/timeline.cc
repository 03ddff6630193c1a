#include "coordinator/dashboard/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "runtime/report/plan_view.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::dashboard {
namespace {

constexpr uint32_t kMostRanks = 64;
constexpr size_t kMostFileBytes = 1 << 20;
constexpr size_t kMostSpans = 40000;  // of an answer
constexpr int64_t kLatestNs = int64_t{1} << 60;
constexpr int64_t kLongestStepNs = int64_t{3600} * 1000000000;

// The words of a line, one number after another.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  std::string_view Next() {
    rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(' ')));
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(word.size());
    return word;
  }

  template <typename T>
  bool Number(T& number) {
    const std::string_view word = Next();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return error == std::errc() && end == word.data() + word.size() && !word.empty();
  }

 private:
  std::string_view rest_;
};

bool ParseFirst(std::string_view line, RankTimeline& timeline) {
  Words words(line);
  int rank = -1;
  return words.Next() == "step" && words.Number(timeline.step) && words.Next() == "rank" &&
         words.Number(rank) && rank == timeline.rank;
}

bool ParseSpan(std::string_view line, uint64_t step, Span& span) {
  Words words(line);
  const std::string_view what = words.Next();
  if (what != "i" && what != "c") return false;
  span.what = what[0];
  uint64_t of_step = 0;
  if (!words.Number(of_step) || of_step != step || !words.Number(span.kind) ||
      !words.Number(span.virtual_stage) || !words.Number(span.micro_batch) ||
      !words.Number(span.start_ns) || !words.Number(span.end_ns)) {
    return false;
  }
  if (span.what == 'c' && (!words.Number(span.group) || !words.Number(span.peer))) return false;
  return v1::InstructionKind_IsValid(span.kind) && span.start_ns >= -kLatestNs &&
         span.end_ns <= kLatestNs && span.start_ns <= span.end_ns;
}

// False: it is no such line.
bool ParseMemory(std::string_view line, RankTimeline& timeline) {
  Words words(line);
  uint64_t resident = 0, peak = 0;
  if (words.Next() != "m" || !words.Number(resident) || !words.Number(peak)) return false;
  timeline.resident_bytes = resident;
  timeline.peak_bytes = peak;
  return true;
}

// Of the ranks that have spans of it.
std::optional<uint64_t> MostCommonStep(const std::vector<RankTimeline>& ranks) {
  std::map<uint64_t, int> counts;
  for (const RankTimeline& rank : ranks) ++counts[rank.step];
  std::optional<uint64_t> best;
  for (const auto& [step, count] : counts) {
    if (!best || count >= counts[*best]) best = step;
  }
  return best;
}

struct Extent {
  int64_t begin_ns = kLatestNs;
  int64_t end_ns = -kLatestNs;
};

Extent ExtentOf(const std::vector<RankTimeline>& ranks, uint64_t step) {
  Extent extent;
  for (const RankTimeline& rank : ranks) {
    if (rank.step != step) continue;
    for (const Span& span : rank.spans) {
      extent.begin_ns = std::min(extent.begin_ns, span.start_ns);
      extent.end_ns = std::max(extent.end_ns, span.end_ns);
    }
  }
  return extent;
}

// The longest, in the order in which they were.
std::vector<Span> Longest(const std::vector<Span>& spans, size_t most) {
  if (spans.size() <= most) return spans;
  std::vector<size_t> order(spans.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto length = [&](size_t i) { return spans[i].end_ns - spans[i].start_ns; };
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
                   [&](size_t a, size_t b) { return length(a) > length(b); });
  order.resize(most);
  std::sort(order.begin(), order.end());
  std::vector<Span> kept;
  for (const size_t i : order) kept.push_back(spans[i]);
  return kept;
}

Json RankJson(const RankTimeline& rank, bool shown, int64_t begin_ns, size_t most_spans) {
  Json spans = Json::array();
  Json transfers = Json::array();
  for (const Span& span : shown ? Longest(rank.spans, most_spans) : std::vector<Span>()) {
    const int64_t start_us = (span.start_ns - begin_ns) / 1000;
    const int64_t end_us = (span.end_ns - begin_ns) / 1000;
    Json one =
        Json::array({span.kind, span.virtual_stage, span.micro_batch, start_us, end_us - start_us});
    if (span.what == 'i') {
      spans.push_back(std::move(one));
      continue;
    }
    one.push_back(span.group);
    one.push_back(span.peer);
    transfers.push_back(std::move(one));
  }
  return {{"rank", rank.rank},
          {"step", rank.step},
          {"resident_bytes", rank.resident_bytes},
          {"peak_bytes", rank.peak_bytes},
          {"spans", std::move(spans)},
          {"transfers", std::move(transfers)}};
}

}  // namespace

std::optional<RankTimeline> ParseTimeline(std::string_view text, int rank) {
  RankTimeline timeline;
  timeline.rank = rank;
  bool first = true;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end);
    if (std::exchange(first, false)) {
      if (!ParseFirst(line, timeline)) return std::nullopt;
      continue;
    }
    if (ParseMemory(line, timeline)) continue;
    Span span;
    if (ParseSpan(line, timeline.step, span)) timeline.spans.push_back(span);
  }
  if (first) return std::nullopt;
  return timeline;
}

Json TimelineJson(const std::vector<RankTimeline>& ranks, int ranks_of_job) {
  Json json = {{"step", nullptr},
               {"length_us", 0},
               {"ranks_of_job", ranks_of_job},
               {"ranks", Json::array()}};
  const std::optional<uint64_t> step = MostCommonStep(ranks);
  if (!step) return json;
  const Extent extent = ExtentOf(ranks, *step);
  const bool sound =
      extent.begin_ns <= extent.end_ns && extent.end_ns - extent.begin_ns <= kLongestStepNs;
  json["step"] = *step;
  if (sound) json["length_us"] = (extent.end_ns - extent.begin_ns) / 1000;
  for (const RankTimeline& rank : ranks) {
    json["ranks"].push_back(
        RankJson(rank, sound && rank.step == *step, extent.begin_ns, kMostSpans / ranks.size()));
  }
  return json;
}

std::vector<RankTimeline> ReadTimelines(int ranks_of_job, const ReadFile& read) {
  std::vector<RankTimeline> timelines;
  const auto ranks = static_cast<uint32_t>(std::max(0, ranks_of_job));
  for (const int rank : report::RowsShown(ranks, kMostRanks)) {
    if (rank < 0) continue;
    const std::string text = read(fmt::format("timeline/rank-{:03}.steps", rank), kMostFileBytes);
    if (auto timeline = ParseTimeline(text, rank)) timelines.push_back(*std::move(timeline));
  }
  return timelines;
}

}  // namespace trireme::dashboard
