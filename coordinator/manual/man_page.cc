#include "coordinator/manual/man_page.h"

namespace trireme::manual {
namespace {

// Text of a line: a backslash, a dot or an apostrophe at its begin would be orders to roff, a
// hyphen that is not escaped becomes another letter.
std::string Escaped(const std::string& line) {
  std::string text;
  for (const char c : line) {
    if (c == '\\') {
      text += "\\e";
    } else if (c == '-') {
      text += "\\-";
    } else if (c == '\'') {
      text += "\\(aq";
    } else if (c == '.' && text.empty()) {
      text += "\\&.";
    } else {
      text += c;
    }
  }
  return text;
}

std::string Bold(const std::string& text) { return "\\fB" + Escaped(text) + "\\fR"; }

std::string PageName(const Command& command) {
  std::string name;
  for (const std::string& word : command.words) name += (name.empty() ? "" : "-") + word;
  return name;
}

std::string Upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

void Section(std::string& page, const std::string& name) { page += ".SH " + name + "\n"; }

void Prose(std::string& page, const std::string& text) {
  for (const Passage& passage : PassagesOf(text)) {
    page += passage.verbatim ? ".PP\n.nf\n" : ".PP\n";
    for (const std::string& line : passage.lines) page += Escaped(line) + "\n";
    if (passage.verbatim) page += ".fi\n";
  }
}

void List(std::string& page, const std::vector<Argument>& arguments) {
  for (const auto& [group, members] : GroupsOf(arguments)) {
    if (group != "Options" && group != "Positionals") page += ".SS " + Escaped(group) + "\n";
    for (const Argument* one : members) {
      page += ".TP\n" + Bold(SynopsisOf(*one)) + "\n" + Escaped(one->help) + "\n";
      if (one->choices.empty()) continue;
      std::string choices;
      for (const std::string& choice : one->choices)
        choices += (choices.empty() ? "" : ", ") + choice;
      page += ".br\nOne of: " + Escaped(choices) + "\n";
    }
  }
}

void Below(std::string& page, const Command& command, bool have_pages) {
  for (const auto& [group, members] : GroupsOf(command.commands)) {
    if (group != "Subcommands") page += ".SS " + Escaped(group) + "\n";
    for (const Command* one : members) {
      page += ".TP\n" + Bold(have_pages ? PageName(*one) + "(1)" : NameOf(*one)) + "\n" +
              Escaped(one->help) + "\n";
    }
  }
}

// Commands of a command share its page.
void Inline(std::string& page, const Command& command) {
  for (const Command& one : command.commands) {
    page += ".SS " + Escaped(NameOf(one)) + " " + Escaped(UsageOf(one)) + "\n" + Escaped(one.help) +
            "\n";
    List(page, one.positionals);
    List(page, one.options);
  }
}

}  // namespace

ManPage PageOf(const Command& command, const ManFooter& footer) {
  const bool root = command.words.size() == 1;
  std::string page =
      ".TH " + Upper(PageName(command)) + " 1 \"\" \"" + footer.version + "\" \"User Commands\"\n";
  Section(page, "NAME");
  page += Escaped(PageName(command)) + " \\- " + Escaped(command.help) + "\n";
  Section(page, "SYNOPSIS");
  page += Bold(NameOf(command)) + " " + Escaped(UsageOf(command)) + "\n";
  if (!command.commands.empty()) {
    Section(page, "COMMANDS");
    root ? Below(page, command, /*have_pages=*/true) : Inline(page, command);
  }
  if (!command.positionals.empty()) {
    Section(page, "ARGUMENTS");
    List(page, command.positionals);
  }
  Section(page, "OPTIONS");
  List(page, command.options);
  if (!command.footer.empty() && !root) {
    Section(page, "NOTES");
    Prose(page, command.footer);
  }
  if (!footer.exit_codes.empty()) {
    Section(page, "EXIT STATUS");
    for (const auto& [code, meaning] : footer.exit_codes) {
      page += ".TP\n" + Bold(std::to_string(code)) + "\n" + Escaped(meaning) + "\n";
    }
  }
  Section(page, "SEE ALSO");
  std::string others = root ? "" : Escaped(command.words[0]) + "(1)";
  for (const std::string& name : footer.see_also) {
    others += (others.empty() ? "" : ", ") + Escaped(name);
  }
  page += others + "\n";
  return {PageName(command), page};
}

std::vector<ManPage> PagesOf(const Command& root, const ManFooter& footer) {
  std::vector<ManPage> pages = {PageOf(root, footer)};
  for (const Command& command : root.commands) pages.push_back(PageOf(command, footer));
  return pages;
}

}  // namespace trireme::manual
