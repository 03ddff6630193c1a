// Columns of text as wide as what is in them.
#pragma once

#include <string>
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
  // As many cells as the header has.
  void Add(std::vector<Cell> row);
  // Lines of at most `width` columns (0: any), what is too long of the last column cut off with
  // "...".
  std::string Text(size_t width) const;

 private:
  std::vector<std::vector<Cell>> rows_;
  std::vector<size_t> right_;
};

// `line` without what lies beyond `columns`; ANSI colours take none, and end with it.
std::string CutLine(const std::string& line, size_t columns);

// Of the terminal on stdout; 0: stdout is none.
size_t TerminalWidth();

}  // namespace trireme::cli
