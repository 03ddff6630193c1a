#include "coordinator/manual/command_tree.h"

#include <algorithm>

namespace trireme::manual {
namespace {

// CLI11 writes what its checks say behind the name of a value: "N:INT in [1 - 8]",
// "SHELL:{bash,zsh}".
void TakeValue(const std::string& type, Argument& argument) {
  argument.value = type;
  const size_t list = type.find(":{");
  if (list != std::string::npos && type.back() == '}') {
    argument.value = type.substr(0, list);
    std::string choice;
    for (const char c : type.substr(list + 2)) {
      if (c != ',' && c != '}') {
        choice += c;
        continue;
      }
      argument.choices.push_back(std::move(choice));
      choice.clear();
    }
    return;
  }
  for (const char* check : {":INT in ", ":UINT in ", ":FLOAT in ", ":NONNEGATIVE", ":POSITIVE"}) {
    argument.value = argument.value.substr(0, argument.value.find(check));
  }
}

Argument ArgumentOf(const CLI::Option& option) {
  Argument argument;
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) argument.names.push_back("--" + name);
  argument.help = option.get_description();
  argument.group = option.get_group();
  argument.required = option.get_required();
  if (option.get_items_expected_max() == 0) return argument;  // a flag
  TakeValue(option.get_type_name(), argument);
  if (argument.value.size() > 2 && argument.value.front() == '[' && argument.value.back() == ']') {
    argument.value = argument.value.substr(1, argument.value.size() - 2);
  }
  argument.value_optional = option.get_expected_min() == 0;
  argument.repeats = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  return argument;
}

Command CommandOf(const CLI::App& app, std::vector<std::string> words) {
  Command command;
  command.words = std::move(words);
  command.words.push_back(app.get_name());
  command.help = app.get_description();
  command.group = app.get_group();
  command.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    auto& list = option->nonpositional() ? command.options : command.positionals;
    list.push_back(ArgumentOf(*option));
  }
  command.needs_command = app.get_require_subcommand_min() > 0;
  for (const CLI::App* below : app.get_subcommands({})) {
    if (below->get_group().empty()) continue;
    command.commands.push_back(CommandOf(*below, command.words));
  }
  return command;
}

}  // namespace

Command TreeOf(const CLI::App& app) { return CommandOf(app, {}); }

const Command* Find(const Command& root, const std::vector<std::string>& words) {
  const Command* at = &root;
  for (const std::string& word : words) {
    const auto below =
        std::find_if(at->commands.begin(), at->commands.end(),
                     [&](const Command& command) { return command.words.back() == word; });
    if (below == at->commands.end()) return nullptr;
    at = &*below;
  }
  return at;
}

std::string NameOf(const Command& command) {
  std::string name;
  for (const std::string& word : command.words) name += (name.empty() ? "" : " ") + word;
  return name;
}

std::string UsageOf(const Command& command) {
  std::string usage = "[OPTIONS]";
  for (const Argument& one : command.options) {
    if (one.required) usage += " " + one.names.back() + " " + one.value;
  }
  for (const Argument& one : command.positionals) {
    usage += one.required ? " " + one.value : " [" + one.value + "]";
  }
  if (!command.commands.empty()) usage += command.needs_command ? " COMMAND" : " [COMMAND]";
  return usage;
}

std::string SynopsisOf(const Argument& argument) {
  std::string text;
  for (const std::string& name : argument.names) text += (text.empty() ? "" : ", ") + name;
  if (argument.value.empty()) return text;
  if (!text.empty()) text += " ";
  return text + (argument.value_optional ? "[" + argument.value + "]" : argument.value);
}

std::vector<Passage> PassagesOf(const std::string& text) {
  std::vector<Passage> passages;
  bool apart = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const bool verbatim = !line.empty() && line[0] == ' ';
    if (line.empty()) {
      apart = true;
      continue;
    }
    if (apart || passages.empty() || passages.back().verbatim != verbatim) {
      passages.push_back({verbatim, {}});
    }
    apart = false;
    passages.back().lines.push_back(line);
  }
  return passages;
}

}  // namespace trireme::manual
