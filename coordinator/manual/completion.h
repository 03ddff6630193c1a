// What may follow the words typed so far.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coordinator/manual/command_tree.h"

namespace trireme::manual {

struct Candidate {
  std::string word;
  std::string help;  // empty: none
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

enum class Names { kNone, kFiles, kFolders };

struct Completion {
  std::vector<Candidate> candidates;  // as whole words, "--state=failed" where that was begun
  Names names = Names::kNone;         // names of files may stand there as well
};

// What has been given so far: options by each of their names, positional words by what they are
// ("JOB").
using GivenOptions = std::map<std::string, std::string>;
// Words for a value that only the program knows, as JOB; may be slow, within reason.
using Suggest =
    std::function<std::vector<Candidate>(const std::string& value, const GivenOptions& given)>;

// `words`: those behind the program's name; the last is the one being typed, and may be empty.
// Words that a shell took apart at '=' or ':' are put together again.
Completion Complete(const Command& root, std::vector<std::string> words, const Suggest& suggest);

// For the scripts of shell_scripts.h: "none", "files" or "folders", then "WORD<tab>HELP" a line.
std::string ForShell(const Completion& completion);

}  // namespace trireme::manual
