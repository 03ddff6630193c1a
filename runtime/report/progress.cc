// Parts of the line with their columns and importance; the bar takes what is left.
#include "runtime/report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace trireme::report {
namespace {

constexpr size_t kMostLosses = 512;
constexpr int kSparkColumns = 16;
constexpr int kLeastBar = 8;
constexpr int kMostBar = 40;

// Text with the columns it takes, which bytes do not tell.
struct Piece {
  std::string text;
  int columns = 0;
};

Piece Ascii(std::string text) {
  const int columns = static_cast<int>(text.size());
  return {std::move(text), columns};
}

double FractionOf(const recorder::Progress& progress) {
  if (progress.steps_total == 0) return 0;
  return std::min(
      1.0, static_cast<double>(progress.steps_done) / static_cast<double>(progress.steps_total));
}

std::string LossText(double loss) { return fmt::format("{:.4f}", loss); }

bool Utf8Locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    return strcasestr(value, "utf-8") != nullptr || strcasestr(value, "utf8") != nullptr;
  }
  return false;
}

// Columns by the terminal and by COLUMNS, the smaller of what is known: too narrow a line is only
// short, too wide a one wraps at every redraw.
int WidthOf(int fd) {
  constexpr int kUnknown = 80;
  int width = 0;
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int named = columns == nullptr ? 0 : std::atoi(columns);
  if (named > 0 && (width == 0 || named < width)) width = named;
  return width > 0 ? width : kUnknown;
}

// Of a line with colours.
int ColumnsOf(const std::string& line) {
  int columns = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\x1b') {
      at = std::min(line.find('m', at), line.size() - 1);
    } else if ((static_cast<unsigned char>(line[at]) & 0xC0) != 0x80) {
      ++columns;
    }
  }
  return columns;
}

}  // namespace

ProgressStyle StyleOf(std::FILE* file) {
  ProgressStyle style;
  const int fd = fileno(file);
  style.width = WidthOf(fd);
  style.unicode = Utf8Locale();
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  style.color = isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') &&
                terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
  return style;
}

std::string Bar(double fraction, int columns, const ProgressStyle& style) {
  static constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string bar;
  if (style.unicode) {
    const int eighths = static_cast<int>(fraction * columns * 8);
    for (int i = 0; i < eighths / 8; ++i) bar += "█";
    int used = eighths / 8;
    if (eighths % 8 != 0) {
      bar += kEighths[static_cast<size_t>(eighths % 8)];
      ++used;
    }
    const std::string rest(static_cast<size_t>(columns - used), ' ');
    if (style.color) return fmt::format("\x1b[36m{}\x1b[0m{}▏", bar, rest);
    return bar + rest + "▏";
  }
  const auto filled = static_cast<size_t>(fraction * columns);
  return fmt::format("[{:#<{}}{:.<{}}]", "", filled, "", static_cast<size_t>(columns) - filled);
}

std::string Sparkline(std::span<const double> values, int columns, bool unicode) {
  static constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::string_view kAscii = "_.,-=+*#";
  const auto count = std::min(values.size(), static_cast<size_t>(std::max(0, columns)));
  std::vector<double> means(count);
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = values.size() * i / count, end = values.size() * (i + 1) / count;
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += values[j];
    means[i] = sum / static_cast<double>(end - begin);
    if (!std::isfinite(means[i])) continue;
    low = std::min(low, means[i]);
    high = std::max(high, means[i]);
  }
  std::string text;
  for (double mean : means) {
    if (!std::isfinite(mean)) {
      text += ' ';
      continue;
    }
    const double height = high > low ? (mean - low) / (high - low) : 0;
    const auto level = static_cast<size_t>(std::min(7.0, height * 8));
    unicode ? text += kBlocks[level] : text += kAscii[level];
  }
  return text;
}

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

std::string FormatRate(double per_second) {
  if (!std::isfinite(per_second)) return "?";
  if (per_second < 999.5) return fmt::format("{:.0f}", per_second);
  if (per_second < 999.5e3) return fmt::format("{:.3g}k", per_second / 1e3);
  if (per_second < 999.5e6) return fmt::format("{:.3g}M", per_second / 1e6);
  return fmt::format("{:.3g}G", per_second / 1e9);
}

void ProgressView::Update(const recorder::Progress& progress, double now_seconds) {
  // A resumed run tells its step before it has done one: there is no loss to show yet.
  if (progress.tokens_per_second == 0 && progress.loss == 0) return;
  const bool news = progress.steps_done != progress_.steps_done;
  progress_ = progress;
  if (!news || progress.steps_done == 0) return;
  if (!started_) {
    started_ = true;
    first_seconds_ = now_seconds;
    first_steps_ = progress.steps_done;
  }
  if (reports_++ % stride_ == 0) losses_.push_back(progress.loss);
  if (losses_.size() < kMostLosses) return;
  for (size_t i = 0; i < losses_.size() / 2; ++i) losses_[i] = losses_[2 * i];
  losses_.resize(losses_.size() / 2);
  stride_ *= 2;
}

double ProgressView::RemainingSeconds(double now_seconds) const {
  if (progress_.steps_done >= progress_.steps_total) return 0;
  if (!started_ || progress_.steps_done <= first_steps_) return -1;
  const double per_step =
      (now_seconds - first_seconds_) / static_cast<double>(progress_.steps_done - first_steps_);
  return per_step * static_cast<double>(progress_.steps_total - progress_.steps_done);
}

std::string ProgressView::Line(const ProgressStyle& style, double now_seconds) const {
  const double fraction = FractionOf(progress_);
  const std::string total = std::to_string(progress_.steps_total);
  // In order of the line; `rank` is the order of importance.
  struct Part {
    Piece piece;
    int rank;
  };
  std::vector<Part> parts;
  parts.push_back(
      {Ascii(fmt::format("step {:>{}}/{}", progress_.steps_done, total.size(), total)), 0});
  parts.push_back({Ascii(fmt::format("{:3.0f}%", std::floor(fraction * 100))), 5});
  parts.push_back({Ascii("loss " + LossText(progress_.loss)), 1});
  const auto spark = static_cast<int>(std::min<size_t>(losses_.size(), kSparkColumns));
  if (spark > 1) parts.push_back({{Sparkline(losses_, spark, style.unicode), spark}, 6});
  if (progress_.validation_step != 0) {
    parts.push_back({Ascii("val " + LossText(progress_.validation_loss)), 4});
  }
  if (progress_.tokens_per_second > 0) {
    parts.push_back({Ascii(FormatRate(progress_.tokens_per_second) + " tok/s"), 3});
  }
  if (progress_.overall_tokens_per_second > 0) {
    parts.push_back({Ascii(FormatRate(progress_.overall_tokens_per_second) + " overall"), 8});
  }
  if (progress_.utilisation > 0) {
    parts.push_back({Ascii(fmt::format("MFU {:.0f}%", progress_.utilisation * 100)), 7});
  }
  const double remaining = RemainingSeconds(now_seconds);
  if (remaining >= 0) parts.push_back({Ascii("ETA " + FormatDuration(remaining)), 2});

  // One column stays free: writing into the last one makes some terminals wrap.
  const int room = style.width - 1;
  const auto used = [&] {
    int columns = -2;
    for (const Part& part : parts) columns += part.piece.columns + 2;
    return columns;
  };
  while (parts.size() > 1 && used() > room) {
    parts.erase(std::max_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.rank < b.rank; }));
  }
  if (used() > room) return parts[0].piece.text.substr(0, static_cast<size_t>(std::max(0, room)));
  const int frame = style.unicode ? 1 : 2;
  const int bar = std::min(kMostBar, room - used() - 2 - frame);
  std::string line = parts[0].piece.text;
  if (bar >= kLeastBar) line += "  " + Bar(fraction, bar, style);
  for (size_t i = 1; i < parts.size(); ++i) line += "  " + parts[i].piece.text;
  return line;
}

std::string ProgressView::PlainLine(double now_seconds) const {
  std::string line = fmt::format("step {}/{} loss {}", progress_.steps_done, progress_.steps_total,
                                 LossText(progress_.loss));
  if (progress_.validation_step != 0) {
    line += fmt::format(" val {} (step {})", LossText(progress_.validation_loss),
                        progress_.validation_step);
  }
  line += fmt::format(" {} tok/s", FormatRate(progress_.tokens_per_second));
  if (progress_.overall_tokens_per_second > 0) {
    line += fmt::format(" in steps, {} overall", FormatRate(progress_.overall_tokens_per_second));
  }
  if (progress_.utilisation > 0) line += fmt::format(" MFU {:.1f}%", progress_.utilisation * 100);
  const double remaining = RemainingSeconds(now_seconds);
  if (remaining > 0) line += " ETA " + FormatDuration(remaining);
  return line;
}

ProgressWriter::ProgressWriter(std::FILE* file, bool terminal, double plain_seconds)
    : file_(file), terminal_(terminal), plain_seconds_(plain_seconds) {}

void ProgressWriter::Plain(const ProgressView& view, double now_seconds) {
  if (view.progress().steps_done == last_steps_) return;
  last_plain_ = now_seconds;
  last_steps_ = view.progress().steps_done;
  std::fprintf(file_, "%s\n", view.PlainLine(now_seconds).c_str());
  std::fflush(file_);
}

void ProgressWriter::Show(const ProgressView& view, double now_seconds) {
  if (view.progress().steps_done == 0) return;
  if (!terminal_) {
    if (now_seconds - last_plain_ >= plain_seconds_) Plain(view, now_seconds);
    return;
  }
  const ProgressStyle style = StyleOf(file_);
  std::string line = view.Line(style, now_seconds);
  if (line == last_line_) return;
  const std::string erased = Wrapped(style.width) ? Erasure(style.width) : "\r";
  last_line_ = std::move(line);
  std::fprintf(file_, "%s%s\x1b[K", erased.c_str(), last_line_.c_str());
  std::fflush(file_);
}

bool ProgressWriter::Wrapped(int width) const { return ColumnsOf(last_line_) > width; }

// The line was drawn to fit, but a terminal that has been made narrower since has wrapped it.
std::string ProgressWriter::Erasure(int width) const {
  if (!Wrapped(width)) return "\r\x1b[K";
  return fmt::format("\r\x1b[{}A\x1b[J", (ColumnsOf(last_line_) - 1) / width);
}

void ProgressWriter::Say(const std::string& line, const ProgressView& view, double now_seconds) {
  if (terminal_ && !last_line_.empty()) {
    std::fputs(Erasure(StyleOf(file_).width).c_str(), file_);
    last_line_.clear();
  }
  std::fprintf(file_, "%s\n", line.c_str());
  if (terminal_) Show(view, now_seconds);
  std::fflush(file_);
}

void ProgressWriter::Finish(const ProgressView& view, double now_seconds) {
  if (view.progress().steps_done == 0) return;
  if (!terminal_) return Plain(view, now_seconds);
  Show(view, now_seconds);
  std::fputc('\n', file_);
  std::fflush(file_);
}

}  // namespace trireme::report
