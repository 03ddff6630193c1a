#include "coordinator/manual/completion.h"

#include <algorithm>
#include <cctype>

namespace trireme::manual {
namespace {

bool BeginsWith(const std::string& text, const std::string& part) {
  return text.rfind(part, 0) == 0;
}

// What stands where the cursor is.
struct Place {
  const Command* command = nullptr;
  std::vector<std::string> words;   // taken as positionals
  const Argument* wants = nullptr;  // the option whose value comes next
  bool only_positionals = false;    // behind "--"
  GivenOptions given;
};

const Argument* OptionOf(const Command& command, const std::string& name) {
  for (const Argument& option : command.options) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) {
      return &option;
    }
  }
  return nullptr;
}

// bash takes words apart at the characters of COMP_WORDBREAKS.
std::vector<std::string> PutTogether(const std::vector<std::string>& words) {
  std::vector<std::string> whole;
  bool open = false;
  for (const std::string& word : words) {
    const bool breaks = word == "=" || word == ":";
    if (!whole.empty() && (open || breaks)) {
      whole.back() += word;
    } else {
      whole.push_back(word);
    }
    open = breaks;
  }
  return whole;
}

// A word that is complete moves the place on.
void Pass(const std::string& word, Place& place) {
  const auto give = [&](const Argument& option, const std::string& value) {
    for (const std::string& name : option.names) place.given[name] = value;
  };
  const bool option_like = word.size() > 1 && word[0] == '-' && !place.only_positionals;
  if (place.wants != nullptr && !(place.wants->value_optional && option_like)) {
    give(*place.wants, word);
    place.wants = nullptr;
    return;
  }
  place.wants = nullptr;
  if (word == "--" && !place.only_positionals) {
    place.only_positionals = true;
  } else if (option_like) {
    const size_t equals = word.find('=');
    const Argument* option = OptionOf(*place.command, word.substr(0, equals));
    if (option == nullptr) return;
    if (equals != std::string::npos) {
      give(*option, word.substr(equals + 1));
    } else if (!option->value.empty()) {
      place.wants = option;
    } else {
      give(*option, "");
    }
  } else if (const Command* below = Find(*place.command, {word}); below != nullptr) {
    place.command = below;
    place.words.clear();
  } else {
    const auto& positionals = place.command->positionals;
    if (place.words.size() < positionals.size()) {
      place.given[positionals[place.words.size()].value] = word;
    }
    place.words.push_back(word);
  }
}

// "auto|DIR": choices in small letters beside names.
std::vector<std::string> AlternativesOf(const std::string& value) {
  std::vector<std::string> parts(1);
  for (const char c : value) {
    if (c == '|') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

void AddValue(const Argument& argument, const std::string& prefix, const Place& place,
              const Suggest& suggest, Completion& completion) {
  for (const std::string& choice : argument.choices) {
    completion.candidates.push_back({prefix + choice, ""});
  }
  if (!argument.choices.empty()) return;
  for (const std::string& part : AlternativesOf(argument.value)) {
    const bool choice = std::all_of(part.begin(), part.end(), [](char c) {
      return std::islower(static_cast<unsigned char>(c)) != 0;
    });
    if (part == "DIR" || part == "FOLDER") {
      completion.names = Names::kFolders;
    } else if (part == "FILE" || part == "IN" || part == "OUT" || part == "JOB.yaml") {
      completion.names = Names::kFiles;
    } else if (choice && argument.value != part) {
      completion.candidates.push_back({prefix + part, ""});
    } else if (suggest) {
      for (const Candidate& one : suggest(part, place.given)) {
        completion.candidates.push_back({prefix + one.word, one.help});
      }
    }
  }
}

void AddCommands(const Command& above, Completion& completion) {
  for (const Command& below : above.commands) {
    completion.candidates.push_back({below.words.back(), below.help});
  }
}

// Commands below the place, or the next positional; "COMMAND" is the name of one of ours, word by
// word.
void AddWord(const Command& root, const Place& place, const Suggest& suggest,
             Completion& completion) {
  AddCommands(*place.command, completion);
  const auto& positionals = place.command->positionals;
  if (!positionals.empty() && positionals.back().value == "COMMAND") {
    if (const Command* above = Find(root, place.words); above != nullptr) {
      AddCommands(*above, completion);
    }
  } else if (place.words.size() < positionals.size()) {
    AddValue(positionals[place.words.size()], "", place, suggest, completion);
  }
}

void AddOptions(const Place& place, Completion& completion) {
  for (const Argument& option : place.command->options) {
    if (!option.repeats && place.given.count(option.names.back()) != 0) continue;
    completion.candidates.push_back({option.names.back(), option.help});
  }
}

}  // namespace

Completion Complete(const Command& root, std::vector<std::string> words, const Suggest& suggest) {
  words = PutTogether(words);
  if (words.empty()) words.emplace_back();
  Place place;
  place.command = &root;
  for (size_t i = 0; i + 1 < words.size(); ++i) Pass(words[i], place);
  const std::string& word = words.back();
  Completion completion;
  const bool option_like = !word.empty() && word[0] == '-' && !place.only_positionals;
  const size_t equals = word.find('=');
  if (place.wants != nullptr && !(place.wants->value_optional && option_like)) {
    AddValue(*place.wants, "", place, suggest, completion);
  } else if (option_like && BeginsWith(word, "--") && equals != std::string::npos) {
    const Argument* option = OptionOf(*place.command, word.substr(0, equals));
    if (option != nullptr && !option->value.empty()) {
      AddValue(*option, word.substr(0, equals + 1), place, suggest, completion);
    }
  } else if (option_like) {
    AddOptions(place, completion);
  } else {
    AddWord(root, place, suggest, completion);
  }
  auto& list = completion.candidates;
  list.erase(std::remove_if(list.begin(), list.end(),
                            [&](const Candidate& one) { return !BeginsWith(one.word, word); }),
             list.end());
  return completion;
}

std::string ForShell(const Completion& completion) {
  std::string text = completion.names == Names::kFiles     ? "files\n"
                     : completion.names == Names::kFolders ? "folders\n"
                                                           : "none\n";
  for (const Candidate& one : completion.candidates) {
    std::string line = one.word + "\t" + one.help;
    std::replace(line.begin(), line.end(), '\n', ' ');
    text += line + "\n";
  }
  return text;
}

}  // namespace trireme::manual
