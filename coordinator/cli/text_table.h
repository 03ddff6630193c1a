// Columns of text as wide as what is in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::cli {

struct Cell {
  std::string text;
  std::string before, after;  // ANSI colours, which take no columns
};

class TextTable {
 public:
  // `right`: indices of columns whose cells stand at their right end.
  TextTable(std::vector<std::string> header, std::vector<size_t> right);
  // Columns whose cells may be cut to 16 letters where the last one would have too little room.
  void Shrink(std::vector<size_t> columns) { shrink_ = std::move(columns); }
  // Blanks between columns; 2 where nothing else is said.
  void Gap(size_t blanks) { gap_ = blanks; }
  // As many cells as the header has.
  void Add(std::vector<Cell> row);
  // The header and the first `rows` as lines of at most `width` columns (0: any), what is too long
  // of the last column and of those that may shrink cut off with "...". Rows left out take no room.
  std::string Text(size_t width, size_t rows = SIZE_MAX) const;

 private:
  std::vector<size_t> Widths(size_t width, size_t lines) const;

  std::vector<std::vector<Cell>> rows_;
  std::vector<size_t> right_, shrink_;
  size_t gap_ = 2;
};

// `line` without what lies beyond `columns`; ANSI colours take none, and end with it.
std::string CutLine(const std::string& line, size_t columns);

// Of the terminal on stdout; 0: stdout is none.
size_t TerminalWidth();

}  // namespace trireme::cli
