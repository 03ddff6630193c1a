// How a run is shown while it runs: one line that is redrawn on a terminal, plain lines elsewhere.
// ProgressView keeps the state, the texts are functions of it, ProgressWriter puts them out.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "runtime/recorder/flight_recorder.h"

namespace trireme::report {

struct ProgressStyle {
  int width = 80;       // columns
  bool unicode = true;  // blocks; otherwise ASCII
  bool color = false;   // ANSI colours
};

// The style of the terminal behind `file` by its size, COLUMNS, the locale (LC_ALL, LC_CTYPE,
// LANG), NO_COLOR and TERM.
ProgressStyle StyleOf(std::FILE* file);

// `fraction` (0 to 1) of `columns` filled; with unicode an edge of one column follows.
std::string Bar(double fraction, int columns, const ProgressStyle& style);

// `values` (at least one finite) as `columns` characters, averaged where there are more values than
// columns; shorter if there are fewer. Values that are not finite are drawn as blanks.
std::string Sparkline(std::span<const double> values, int columns, bool unicode);

// "12s", "3m20s", "1h02m", "2d03h".
std::string FormatDuration(double seconds);
// "987", "51.2k", "1.30M".
std::string FormatRate(double per_second);

class ProgressView {
 public:
  // The newest report at `now_seconds` of any monotonic clock; unchanged reports cost nothing.
  void Update(const recorder::Progress& progress, double now_seconds);

  const recorder::Progress& progress() const { return progress_; }
  // Training losses seen so far, evenly thinned to at most 512.
  const std::vector<double>& losses() const { return losses_; }
  // Seconds to the end at the mean speed since the first report; negative: not known yet.
  double RemainingSeconds(double now_seconds) const;

  // "tok/s" is the rate of the newest step, "overall" that of all the time since the attempt's
  // first step, with checkpoints, evaluation and measuring. At most style.width columns, no line
  // feed. Narrow lines lose the least important parts first.
  std::string Line(const ProgressStyle& style, double now_seconds) const;
  // For files and pipes: every part, ASCII.
  std::string PlainLine(double now_seconds) const;

 private:
  recorder::Progress progress_;
  std::vector<double> losses_;
  uint64_t stride_ = 1;  // reports per kept loss
  uint64_t reports_ = 0;
  bool started_ = false;
  double first_seconds_ = 0;
  uint64_t first_steps_ = 0;
};

// One thread. Writes nothing until the first step is done.
class ProgressWriter {
 public:
  // `terminal`: redraw one line; otherwise a plain line each `plain_seconds` and at the end.
  ProgressWriter(std::FILE* file, bool terminal, double plain_seconds = 5);
  void Show(const ProgressView& view, double now_seconds);
  // A line of other news, which stays; the progress goes on below it.
  void Say(const std::string& line, const ProgressView& view, double now_seconds);
  // The last state, and the line's end. Later text begins on a line of its own.
  void Finish(const ProgressView& view, double now_seconds);

 private:
  void Plain(const ProgressView& view, double now_seconds);
  bool Wrapped(int width) const;
  std::string Erasure(int width) const;

  std::FILE* file_;
  bool terminal_;
  double plain_seconds_;
  double last_plain_ = -1e300;
  uint64_t last_steps_ = 0;
  std::string last_line_;
};

}  // namespace trireme::report
