#include "coordinator/cli/text_table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/report/progress.h"

namespace trireme::cli {
namespace {

constexpr size_t kLeastLast = 8;
constexpr size_t kLastShould = 24;  // before others are left as wide as they are
constexpr size_t kLeastShrunk = 16;

bool BeginsLetter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// Letters, not bytes.
size_t Columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), BeginsLetter));
}

std::string CutTo(const std::string& text, size_t columns) {
  if (Columns(text) <= columns) return text;
  size_t letters = 0, at = 0;
  for (; at < text.size(); ++at) {
    if (BeginsLetter(text[at]) && ++letters > columns - 3) break;
  }
  return text.substr(0, at) + "...";
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header, std::vector<size_t> right)
    : right_(std::move(right)) {
  std::vector<Cell> cells;
  for (std::string& name : header) cells.push_back({std::move(name), "", ""});
  rows_.push_back(std::move(cells));
}

void TextTable::Add(std::vector<Cell> row) {
  TRIREME_CHECK(row.size() == rows_[0].size());
  rows_.push_back(std::move(row));
}

// Of the first `lines` rows, the header among them.
std::vector<size_t> TextTable::Widths(size_t width, size_t lines) const {
  std::vector<size_t> widths(rows_[0].size());
  for (size_t line = 0; line < lines; ++line) {
    for (size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], Columns(rows_[line][i].text));
    }
  }
  if (width == 0) return widths;
  size_t& last = widths.back();
  size_t before = 0;
  for (size_t i = 0; i + 1 < widths.size(); ++i) before += widths[i] + gap_;
  // The widest gives first: a long name hides less of itself than of all that stands behind it.
  while (before + std::min(last, kLastShould) > width && !shrink_.empty()) {
    size_t& widest = widths[*std::max_element(
        shrink_.begin(), shrink_.end(), [&](size_t a, size_t b) { return widths[a] < widths[b]; })];
    if (widest <= kLeastShrunk) break;
    --widest;
    --before;
  }
  last = std::min(last, width > before + kLeastLast ? width - before : kLeastLast);
  return widths;
}

std::string TextTable::Text(size_t width, size_t rows) const {
  const size_t lines = rows < rows_.size() ? rows + 1 : rows_.size();
  const std::vector<size_t> widths = Widths(width, lines);
  std::string text;
  for (size_t at = 0; at < lines; ++at) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      const Cell& cell = rows_[at][i];
      const std::string shown = CutTo(cell.text, widths[i]);
      const bool last = i + 1 == widths.size();
      const std::string blanks(last ? 0 : widths[i] - Columns(shown), ' ');
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      if (i > 0) line.append(gap_, ' ');
      line += right ? blanks : "";
      line += cell.before + shown + cell.after;
      line += right ? "" : blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string CutLine(const std::string& line, size_t columns) {
  size_t letters = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\x1b') {
      at = std::min(line.find('m', at), line.size() - 1);
    } else if (BeginsLetter(line[at]) && ++letters > columns) {
      const bool painted = line.find('\x1b') != std::string::npos;
      return line.substr(0, at) + (painted ? "\x1b[0m" : "");
    }
  }
  return line;
}

size_t TerminalWidth() {
  if (isatty(STDOUT_FILENO) != 1) return 0;
  return static_cast<size_t>(std::max(20, report::StyleOf(stdout).width));
}

}  // namespace trireme::cli
