#include "coordinator/dashboard/curve.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "runtime/json/json_text.h"

namespace trireme::dashboard {
namespace {

constexpr size_t kMostPoints = 2000;
constexpr int64_t kWholeBytes = 1 << 20;  // so much is read in one go, beyond it a sample
constexpr size_t kSampleBytes = 4096;     // holds some lines
constexpr int kSampleLines = 16;  // more of them than one say nothing new but where validation was
constexpr size_t kLongestLine = 64 << 10;

constexpr std::array<const char*, 6> kColumns = {"loss",          "tokens_per_second",
                                                 "step_time_ms",  "exposed_communication_ms",
                                                 "learning_rate", "gradient_norm"};

struct Point {
  double step = 0;
  std::array<Json, kColumns.size()> values;
};

struct Points {
  std::vector<Point> steps;
  std::vector<std::pair<double, double>> validation;
};

// The last one of a step counts, and steps ascend: what a curve needs of its abscissa.
template <typename T, typename StepOf>
void Append(std::vector<T>& list, T one, StepOf step_of) {
  while (!list.empty() && step_of(list.back()) >= step_of(one)) list.pop_back();
  list.push_back(std::move(one));
}

void TakeLine(std::string_view line, Points& points) {
  if (line.size() > kLongestLine) return;
  const Json json = json_text::ParseOrdered(line);
  if (!json.is_object()) return;
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number()) return;
  if (const auto loss = json.find("validation_loss"); loss != json.end()) {
    if (!loss->is_number()) return;
    Append(points.validation, std::pair(step->get<double>(), loss->get<double>()),
           [](const auto& one) { return one.first; });
    return;
  }
  Point point{step->get<double>(), {}};
  for (size_t i = 0; i < kColumns.size(); ++i) {
    const auto value = json.find(kColumns[i]);
    if (value != json.end() && value->is_number()) point.values[i] = *value;
  }
  Append(points.steps, std::move(point), [](const Point& one) { return one.step; });
}

// The first `most` whole lines; returns how many bytes they are.
size_t TakeLines(std::string_view text, Points& points,
                 int64_t most = std::numeric_limits<int64_t>::max()) {
  size_t begin = 0;
  for (size_t end; most-- > 0 && (end = text.find('\n', begin)) != std::string_view::npos;
       begin = end + 1) {
    TakeLine(text.substr(begin, end - begin), points);
  }
  return begin;
}

// Lines at even distances, and the last ones; returns where the last whole line ends.
int64_t TakeSample(const RunFile& file, int64_t begin, Points& points) {
  const int64_t tail_begin = file.size() - static_cast<int64_t>(kLongestLine);
  const auto take = [&](int64_t at, size_t bytes, int64_t lines) {
    const std::string piece = file.Read(at, bytes);
    const size_t first = at == begin ? 0 : piece.find('\n') + 1;  // npos + 1 is 0: no whole line
    if (at != begin && first == 0) return size_t{0};
    return first + TakeLines(std::string_view(piece).substr(first), points, lines);
  };
  constexpr auto kPieces = static_cast<int64_t>(kMostPoints);
  for (int64_t piece = 0; piece < kPieces; ++piece) {
    take(begin + (tail_begin - begin) / kPieces * piece, kSampleBytes, kSampleLines);
  }
  const size_t taken = take(tail_begin, kLongestLine, std::numeric_limits<int64_t>::max());
  return taken == 0 ? file.size() : tail_begin + static_cast<int64_t>(taken);
}

// Evenly, with the first and the last.
template <typename T>
void Thin(std::vector<T>& list) {
  if (list.size() <= kMostPoints) return;
  std::vector<T> kept;
  for (size_t i = 0; i < kMostPoints; ++i) {
    kept.push_back(std::move(list[i * (list.size() - 1) / (kMostPoints - 1)]));
  }
  list.swap(kept);
}

Json ColumnsOf(const Points& points) {
  Json json = {{"step", Json::array()}};
  for (const char* column : kColumns) json[column] = Json::array();
  for (const Point& point : points.steps) {
    json["step"].push_back(point.step);
    for (size_t i = 0; i < kColumns.size(); ++i) json[kColumns[i]].push_back(point.values[i]);
  }
  json["validation"] = Json::array();
  for (const auto& [step, loss] : points.validation) {
    json["validation"].push_back(Json::array({step, loss}));
  }
  return json;
}

}  // namespace

Json CurveJson(const RunFile& file, const std::string& version, const CurveRequest& request) {
  const std::string name = version + "-" + file.identity();
  const bool goes_on = request.file == name && request.offset >= 0 && request.offset <= file.size();
  const int64_t begin = goes_on ? request.offset : 0;
  Points points;
  int64_t end = begin;
  if (file.size() - begin > kWholeBytes) {
    end = TakeSample(file, begin, points);
  } else {
    const std::string text = file.Read(begin, static_cast<size_t>(file.size() - begin));
    end += static_cast<int64_t>(TakeLines(text, points));
  }
  Thin(points.steps);
  Thin(points.validation);
  Json json = {{"file", name}, {"offset", end}, {"size", file.size()}, {"reset", !goes_on}};
  json.update(ColumnsOf(points));
  return json;
}

Json EmptyCurveJson() {
  Json json = {{"file", ""}, {"offset", 0}, {"size", 0}, {"reset", true}};
  json.update(ColumnsOf({}));
  return json;
}

}  // namespace trireme::dashboard
