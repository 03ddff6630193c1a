// A command line as data: what CLI11 knows of it, without its hidden parts.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trireme::manual {

// An option, a flag or a positional word.
struct Argument {
  std::vector<std::string> names;    // "-n", "--ranks"; a positional has none
  std::string value;                 // "N"; empty: a flag
  std::vector<std::string> choices;  // the only values, if not empty
  std::string help;
  std::string group;
  bool required = false;
  bool value_optional = false;
  bool repeats = false;
};

struct Command {
  std::vector<std::string> words;  // "trireme", "codec", "stat"
  std::string help;
  std::string group;
  std::string footer;
  std::vector<Argument> options;
  std::vector<Argument> positionals;
  std::vector<Command> commands;
  bool needs_command = false;  // one of `commands`
};

Command TreeOf(const CLI::App& app);

// The command that `words` name below `root`; null: there is none.
const Command* Find(const Command& root, const std::vector<std::string>& words);

// "trireme codec stat".
std::string NameOf(const Command& command);
// "[OPTIONS] JOB.yaml"; "COMMAND".
std::string UsageOf(const Command& command);
// "-n, --ranks N", "--resume [VALUE]"; of a positional its value.
std::string SynopsisOf(const Argument& argument);

// Groups of `list` in the order in which they first come, each with its members.
template <typename Member>
std::vector<std::pair<std::string, std::vector<const Member*>>> GroupsOf(
    const std::vector<Member>& list) {
  std::vector<std::pair<std::string, std::vector<const Member*>>> groups;
  for (const Member& member : list) {
    auto found = groups.begin();
    while (found != groups.end() && found->first != member.group) ++found;
    if (found == groups.end()) found = groups.insert(groups.end(), {member.group, {}});
    found->second.push_back(&member);
  }
  return groups;
}

// A footer as it was meant: lines that begin with blanks are examples, others are prose.
struct Passage {
  bool verbatim = false;
  std::vector<std::string> lines;
};
std::vector<Passage> PassagesOf(const std::string& text);

}  // namespace trireme::manual
