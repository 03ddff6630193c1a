#include "coordinator/cli/text_table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/report/progress.h"

namespace trireme::cli {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kLeastLast = 8;

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

std::string TextTable::Text(size_t width) const {
  const size_t columns = rows_[0].size();
  std::vector<size_t> widths(columns);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], Columns(row[i].text));
  }
  size_t before_last = 0;
  for (size_t i = 0; i + 1 < columns; ++i) before_last += widths[i] + kGap;
  size_t last = widths[columns - 1];
  if (width > 0) {
    last = std::min(last, width > before_last + kLeastLast ? width - before_last : kLeastLast);
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < columns; ++i) {
      const std::string shown = i + 1 < columns ? row[i].text : CutTo(row[i].text, last);
      const std::string blanks(i + 1 < columns ? widths[i] - Columns(shown) : 0, ' ');
      const bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      if (i > 0) line.append(kGap, ' ');
      line += right ? blanks : "";
      line += row[i].before + shown + row[i].after;
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
