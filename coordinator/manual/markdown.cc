#include "coordinator/manual/markdown.h"

namespace trireme::manual {
namespace {

// Of a cell of a table.
std::string Cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*' || c == '[') cell += '\\';
    cell += c == '\n' ? ' ' : c;
  }
  return cell;
}

// Within backquotes only the bar of a table is escaped.
std::string Code(const std::string& text) {
  std::string code;
  for (const char c : text) code += c == '|' ? std::string("\\|") : std::string(1, c);
  return "`" + code + "`";
}

std::string Choices(const Argument& argument) {
  std::string text;
  for (const std::string& choice : argument.choices) text += (text.empty() ? "" : ", ") + choice;
  return text.empty() ? "" : " (" + text + ")";
}

void Rows(std::string& page, const std::vector<const Argument*>& arguments) {
  for (const Argument* one : arguments) {
    page += "| " + Code(SynopsisOf(*one)) + " | " + Cell(one->help + Choices(*one)) + " |\n";
  }
}

// Groups that many commands share are told once, at the top.
bool IsShared(const std::string& group) { return group == "Coordinator"; }

void Table(std::string& page, const Command& command) {
  std::vector<const Argument*> rows;
  for (const Argument& one : command.positionals) rows.push_back(&one);
  for (const Argument& one : command.options) {
    if (!IsShared(one.group) && one.names.back() != "--help") rows.push_back(&one);
  }
  if (rows.empty()) return;
  page += "\n| argument | what it is |\n|---|---|\n";
  Rows(page, rows);
}

void Footer(std::string& page, const std::string& footer) {
  for (const Passage& passage : PassagesOf(footer)) {
    page += "\n";
    if (passage.verbatim) page += "```\n";
    for (const std::string& line : passage.lines) {
      page += (passage.verbatim ? line.substr(line.find_first_not_of(' ')) : line) + "\n";
    }
    if (passage.verbatim) page += "```\n";
  }
}

void Section(std::string& page, const Command& command) {
  const std::string level(command.words.size(), '#');
  page += "\n" + level + " " + NameOf(command) + "\n" + command.help + "\n\n    " +
          NameOf(command) + " " + UsageOf(command) + "\n";
  Table(page, command);
  Footer(page, command.footer);
  for (const Command& below : command.commands) Section(page, below);
}

const Argument* FirstShared(const Command& command) {
  for (const Argument& one : command.options) {
    if (IsShared(one.group)) return &one;
  }
  return nullptr;
}

}  // namespace

std::string MarkdownOf(const Command& root, const std::string& introduction) {
  std::string page = introduction;
  page += "\n| command | what it does |\n|---|---|\n";
  for (const auto& [group, members] : GroupsOf(root.commands)) {
    for (const Command* command : members) {
      std::string anchor = NameOf(*command);
      for (char& c : anchor) c = c == ' ' ? '-' : c;
      page += "| [" + NameOf(*command) + "](#" + anchor + ") | " + Cell(command->help) + " |\n";
    }
  }
  for (const Command& command : root.commands) {
    if (FirstShared(command) == nullptr) continue;
    page += "\n## To reach a coordinator\nEach command that speaks to one takes these as well.\n";
    page += "\n| argument | what it is |\n|---|---|\n";
    for (const auto& [group, members] : GroupsOf(command.options)) {
      if (IsShared(group)) Rows(page, members);
    }
    break;
  }
  for (const Command& command : root.commands) Section(page, command);
  return page;
}

}  // namespace trireme::manual
