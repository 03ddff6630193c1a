// The progress line: what it says, and that it fits whatever the terminal is.
#include "runtime/report/progress.h"

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace trireme::report {
namespace {

recorder::Progress At(uint64_t step, double loss) {
  return {step, 2000, loss, 51234, 0.427, step >= 100 ? 2.5 : 0, step >= 100 ? uint64_t{100} : 0};
}

// Columns of a line: code points without ANSI sequences.
int Columns(const std::string& line) {
  int columns = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (line[i] != 'm') ++i;
      continue;
    }
    columns += (static_cast<uint8_t>(line[i]) & 0xC0) != 0x80;
  }
  return columns;
}

bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ProgressView Halfway() {
  ProgressView view;
  for (uint64_t step = 1; step <= 1000; ++step) {
    view.Update(At(step, 4.0 / std::sqrt(static_cast<double>(step))),
                10 + 0.1 * static_cast<double>(step));
  }
  return view;
}

TEST_CASE("a wide line says everything") {
  const std::string line = Halfway().Line({160, true, false}, 110);
  for (const char* part : {"step 1000/2000", " 50%", "loss 0.1265", "val 2.5000", "51.2k tok/s",
                           "MFU 43%", "ETA 1m40s", "█", "▁"}) {
    CAPTURE(part, line);
    CHECK(Holds(line, part));
  }
  CHECK_FALSE(Holds(line, "\x1b"));
  CHECK(Holds(Halfway().Line({160, true, true}, 110), "\x1b[36m"));
}

TEST_CASE("no width is overrun, and step and loss stay longest") {
  const ProgressView view = Halfway();
  for (int width = 0; width < 200; ++width) {
    for (bool unicode : {false, true}) {
      const std::string line = view.Line({width, unicode, unicode}, 110);
      CAPTURE(width, line);
      CHECK(Columns(line) <= std::max(0, width - 1));
      if (!unicode) CHECK(Columns(line) == static_cast<int>(line.size()));
      if (width > 30) CHECK(Holds(line, "loss 0.1265"));
      if (width > 45) CHECK(Holds(line, "ETA"));
    }
  }
}

TEST_CASE("COLUMNS tells the width where no terminal does") {
  std::FILE* file = std::fopen("/dev/null", "w");
  REQUIRE(file != nullptr);
  const char* before = std::getenv("COLUMNS");
  const std::string kept = before == nullptr ? "" : before;
  setenv("COLUMNS", "40", 1);
  CHECK(StyleOf(file).width == 40);
  for (const char* none : {"", "0", "-5", "wide"}) {
    setenv("COLUMNS", none, 1);
    CHECK(StyleOf(file).width == 80);
  }
  before == nullptr ? unsetenv("COLUMNS") : setenv("COLUMNS", kept.c_str(), 1);
  std::fclose(file);
}

TEST_CASE("the plain line is ASCII and whole") {
  CHECK(Halfway().PlainLine(110) ==
        "step 1000/2000 loss 0.1265 val 2.5000 (step 100) 51.2k tok/s MFU 42.7% ETA 1m40s");
}

TEST_CASE("both rates are shown, each by its name") {
  ProgressView view = Halfway();
  recorder::Progress progress = At(1001, 1);
  progress.overall_tokens_per_second = 40'321;
  view.Update(progress, 110.1);
  CHECK(Holds(view.PlainLine(110.1), " 51.2k tok/s in steps, 40.3k overall MFU "));
  CHECK(Holds(view.Line({160, false, false}, 110.1), "  51.2k tok/s  40.3k overall  MFU "));
  // The first to go where there is no room.
  const std::string narrow = view.Line({80, false, false}, 110.1);
  CHECK_FALSE(Holds(narrow, "overall"));
  CHECK(Holds(narrow, "51.2k tok/s"));
}

TEST_CASE("the time left counts from where this run began") {
  ProgressView view;                             // resumed at step 1500
  view.Update({1499, 2000, 0, 0, 0, 0, 0}, 45);  // no step of this run yet
  CHECK(view.losses().empty());
  view.Update(At(1500, 1), 50);
  CHECK(view.RemainingSeconds(50) < 0);
  CHECK_FALSE(Holds(view.Line({160, true, false}, 50), "ETA"));
  view.Update(At(1510, 1), 60);
  CHECK(view.RemainingSeconds(60) == Approx(490));
  view.Update(At(2000, 1), 600);
  CHECK(view.RemainingSeconds(600) == 0);
}

TEST_CASE("losses are thinned and keep their shape") {
  ProgressView view;
  for (uint64_t step = 1; step <= 100000; ++step)
    view.Update(At(step, static_cast<double>(step)), 0);
  CHECK(view.losses().size() <= 512);
  CHECK(view.losses().size() >= 200);
  for (size_t i = 1; i < view.losses().size(); ++i) {
    CHECK(view.losses()[i] - view.losses()[i - 1] == view.losses()[1] - view.losses()[0]);
  }
  CHECK(view.losses().back() > 95000);
}

TEST_CASE("sparklines scale, average and survive NaN") {
  CHECK(Sparkline(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}, 8, true) == "▁▂▃▄▅▆▇█");
  CHECK(Sparkline(std::vector<double>{8, 6, 2, 0}, 2, false) == "#_");
  CHECK(Sparkline(std::vector<double>{1, 1}, 8, false) == "__");
  CHECK(Sparkline(std::vector<double>{1, NAN, 2}, 3, false) == "_ #");
  CHECK(Sparkline(std::vector<double>{}, 3, false).empty());
}

TEST_CASE("durations and rates") {
  CHECK(FormatDuration(0) == "0s");
  CHECK(FormatDuration(59.6) == "1m00s");
  CHECK(FormatDuration(3725) == "1h02m");
  CHECK(FormatDuration(183600) == "2d03h");
  CHECK(FormatDuration(NAN) == "?");
  CHECK(FormatRate(999.4) == "999");
  CHECK(FormatRate(51234) == "51.2k");
  CHECK(FormatRate(1.3e6) == "1.3M");
}

TEST_CASE("without a terminal lines come at intervals and the last state once") {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* file = open_memstream(&text, &size);
  ProgressWriter writer(file, /*terminal=*/false, 5);
  ProgressView view;
  writer.Show(view, 0);
  for (uint64_t step = 1; step <= 100; ++step) {
    const double now = 0.1 * static_cast<double>(step);
    view.Update(At(step, 1), now);
    writer.Show(view, now);
  }
  writer.Finish(view, 10);
  writer.Finish(view, 10);
  std::fclose(file);
  const std::string out(text, size);
  std::free(text);
  CHECK(std::count(out.begin(), out.end(), '\n') == 3);  // at 0.1 s, 5.1 s and the end
  CHECK(Holds(out, "step 1/2000"));
  CHECK(Holds(out, "step 51/2000"));
  CHECK(Holds(out, "step 100/2000"));
  CHECK_FALSE(Holds(out, "\r"));
}

TEST_CASE("a terminal's line is redrawn and ended once") {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* file = open_memstream(&text, &size);
  ProgressWriter writer(file, /*terminal=*/true);
  ProgressView view;
  view.Update(At(1, 1), 0);
  writer.Show(view, 0);
  writer.Show(view, 0);
  view.Update(At(2, 1), 1);
  writer.Finish(view, 1);
  std::fclose(file);
  const std::string out(text, size);
  std::free(text);
  CHECK(std::count(out.begin(), out.end(), '\r') == 2);
  CHECK(std::count(out.begin(), out.end(), '\n') == 1);
}

// What stands on a terminal that wraps what it has when it is made narrower, as most do, after all
// that `bytes` says.
class Screen {
 public:
  explicit Screen(size_t width) : width_(width) {}
  void Resize(size_t width) {
    std::vector<std::string> rows;
    for (const std::string& row : rows_) {
      for (size_t at = 0; at == 0 || at < row.size(); at += width) {
        rows.push_back(row.substr(at, width));
      }
    }
    rows_ = std::move(rows);
    width_ = width;
    row_ = rows_.size() - 1;
    column_ = rows_[row_].size();
  }
  void Take(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size(); ++at) {
      if (bytes[at] == '\r') {
        column_ = 0;
      } else if (bytes[at] == '\n') {
        column_ = 0;
        if (++row_ == rows_.size()) rows_.emplace_back();
      } else if (bytes[at] == '\x1b') {
        const size_t end = bytes.find_first_of("AJK", at);
        REQUIRE(end != std::string::npos);
        if (bytes[end] == 'A') row_ -= static_cast<size_t>(std::stoi(bytes.substr(at + 2)));
        if (bytes[end] == 'J') rows_.resize(row_ + 1);
        if (bytes[end] != 'A') rows_[row_].resize(std::min(rows_[row_].size(), column_));
        at = end;
      } else {
        REQUIRE(column_ < width_);
        rows_[row_].resize(std::max(rows_[row_].size(), column_ + 1), ' ');
        rows_[row_][column_++] = bytes[at];
      }
    }
  }
  const std::vector<std::string>& rows() const { return rows_; }

 private:
  size_t width_, row_ = 0, column_ = 0;
  std::vector<std::string> rows_{""};
};

TEST_CASE("a terminal that is made narrower keeps nothing of the wider line") {
  for (const char* name : {"COLUMNS", "LC_ALL", "LC_CTYPE", "LANG"}) unsetenv(name);
  setenv("NO_COLOR", "1", 1);
  for (const bool says : {true, false}) {
    CAPTURE(says);
    int master = -1, slave = -1;
    winsize size{30, 150, 0, 0};
    REQUIRE(openpty(&master, &slave, nullptr, nullptr, &size) == 0);
    termios mode{};
    REQUIRE(tcgetattr(slave, &mode) == 0);
    cfmakeraw(&mode);
    REQUIRE(tcsetattr(slave, TCSANOW, &mode) == 0);
    std::FILE* file = fdopen(slave, "w");
    REQUIRE(setvbuf(file, nullptr, _IONBF, 0) == 0);  // in as many pieces as there can be
    ProgressWriter writer(file, /*terminal=*/true);
    Screen screen(size.ws_col);
    // The kernel hands on what was written when it has the time, and in pieces: all of it is there
    // once a mark written behind it is.
    const auto look = [&] {
      constexpr char kMark = '\x05';
      REQUIRE(write(slave, &kMark, 1) == 1);
      std::string all;
      while (all.empty() || all.back() != kMark) {
        pollfd readable{master, POLLIN, 0};
        REQUIRE(poll(&readable, 1, 60'000) == 1);
        char bytes[4096];
        const ssize_t count = read(master, bytes, sizeof bytes);
        REQUIRE(count > 0);
        all.append(bytes, static_cast<size_t>(count));
      }
      all.pop_back();
      screen.Take(all);
    };
    ProgressView view;
    for (uint64_t step = 1; step <= 30; ++step) {
      view.Update(At(step, 1), static_cast<double>(step));
    }
    writer.Say("an event", view, 30);
    look();
    REQUIRE(screen.rows().size() == 2);
    CHECK(screen.rows()[1].size() > 80);
    for (const unsigned short columns : {40, 150, 60}) {
      size.ws_col = columns;
      REQUIRE(ioctl(master, TIOCSWINSZ, &size) == 0);
      screen.Resize(columns);
      if (says) {
        writer.Say("another", view, 30);
      } else {
        writer.Show(view, 30);
      }
      look();
      CHECK(screen.rows()[0] == "an event");
      CHECK(screen.rows().back().find("step ") == 0);
      size_t lines = 0;
      for (const std::string& row : screen.rows()) lines += row.find("step ") == 0 ? 1 : 0;
      CHECK(lines == 1);
      for (size_t i = 1; i + 1 < screen.rows().size(); ++i) CHECK(screen.rows()[i] == "another");
    }
    std::fclose(file);
    close(master);
  }
}

}  // namespace
}  // namespace trireme::report
