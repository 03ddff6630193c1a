// A reader in place of CLI11's own, which takes what it does not understand for something else: it
// cuts strings at '#', skips short lines and counts none.
#include "coordinator/config_file/config_file.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/spec/suggestion.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kMostFaults = 20;
constexpr size_t kMostBytes = 1 << 20;

struct Value {
  enum class Kind { kString, kNumber, kBool, kArray };
  Kind kind = Kind::kString;
  std::vector<std::string> texts;  // of an array any number, else one
};

struct Fault {
  int line;
  std::string text;
};

bool IsBare(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

// Over the whole text. Faults are thrown.
class Scanner {
 public:
  explicit Scanner(std::string text) : text_(std::move(text)) {}

  bool AtEnd() const { return at_ >= text_.size(); }
  int line() const { return line_; }

  // To the next key, or the end.
  void SkipEmptyLines() {
    while (!AtEnd() && (SkipBlanks(), IsNewline() || Peek() == '#')) SkipLine();
  }

  void SkipLine() {
    while (!AtEnd() && Next() != '\n') {
    }
  }

  std::string Key() {
    if (Peek() == '[') throw Fault{line_, "there are no sections here: take the line out"};
    const std::string key = Bare();
    SkipBlanks();
    if (key.empty() || Peek() != '=') {
      throw Fault{line_, (key.empty() ? std::string() : key + ": ") + "expected key = value"};
    }
    Next();
    SkipBlanks();
    return key;
  }

  // With the end of its line.
  Value Read() {
    Value value = Peek() == '[' ? Array() : One();
    SkipBlanks();
    if (!AtEnd() && !IsNewline() && Peek() != '#') {
      throw Fault{line_, "something stands after the value; a string with blanks needs quotes"};
    }
    return value;
  }

 private:
  char Peek() const { return AtEnd() ? '\n' : text_[at_]; }
  bool IsNewline() const {
    return Peek() == '\n' || (Peek() == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n');
  }
  char Next() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  void SkipBlanks() {
    while (!AtEnd() && (Peek() == ' ' || Peek() == '\t')) Next();
  }
  std::string Bare() {
    std::string word;
    while (!AtEnd() && IsBare(Peek())) word += Next();
    return word;
  }

  Value One() {
    const char quote = Peek();
    if (quote == '"' || quote == '\'') return {Value::Kind::kString, {Quoted(quote)}};
    std::string word;
    while (!AtEnd() && (IsBare(Peek()) || Peek() == '.' || Peek() == '+')) word += Next();
    if (word.empty()) throw Fault{line_, "expected a value: \"a string\", a number, true or false"};
    if (word == "true" || word == "false") return {Value::Kind::kBool, {word}};
    const char first = word[0] == '-' || word[0] == '+' ? word[1] : word[0];
    if (std::isdigit(static_cast<unsigned char>(first)) == 0) {
      throw Fault{line_, "a string needs quotes: \"" + word + "\""};
    }
    return {Value::Kind::kNumber, {word}};
  }

  std::string Quoted(char quote) {
    Next();
    std::string text;
    while (!AtEnd() && Peek() != quote && Peek() != '\n') {
      char c = Next();
      if (c == '\\' && quote == '"') {
        c = AtEnd() ? '\n' : Next();
        if (c != '"' && c != '\\') {
          throw Fault{line_, std::string("\\") + c + " is not known here, only \\\" and \\\\"};
        }
      }
      if (c == '\0') throw Fault{line_, "a byte 0 is in the string"};
      text += c;
    }
    if (Peek() != quote) throw Fault{line_, std::string("the closing ") + quote + " is missing"};
    Next();
    return text;
  }

  Value Array() {
    const int begun = line_;
    Next();
    Value value{Value::Kind::kArray, {}};
    while (true) {
      SkipEmptyLines();
      if (AtEnd()) throw Fault{begun, "the closing ] is missing"};
      if (Peek() == ']') break;
      value.texts.push_back(One().texts[0]);
      SkipEmptyLines();
      if (!AtEnd() && Peek() == ',') {
        Next();
        continue;
      }
      if (AtEnd()) throw Fault{begun, "the closing ] is missing"};
      if (Peek() != ']') throw Fault{line_, "expected a comma or ] in the array"};
      break;
    }
    Next();
    return value;
  }

  const std::string text_;
  size_t at_ = 0;
  int line_ = 1;
};

std::string KeyOf(const CLI::Option& option) {
  return option.get_lnames().empty() ? "" : option.get_lnames()[0];
}

// For a key that no option has: the one that was meant, else all that there are.
std::string Suggested(const CLI::App& app, const std::string& key) {
  std::vector<std::string> names;
  for (const CLI::Option* one : app.get_options()) {
    if (one->get_configurable()) names.push_back(KeyOf(*one));
  }
  const std::string meant = spec::NearestName(key, names);
  if (!meant.empty()) return ", did you mean " + meant + "?";
  return "; there are: " + CLI::detail::join(names, ", ");
}

// Nothing, if the option takes the value.
std::optional<std::string> WhyNot(const CLI::App& app, const std::string& key, const Value& value) {
  const CLI::Option* option = app.get_option_no_throw("--" + key);
  if (option == nullptr) return "no such option" + Suggested(app, key);
  if (!option->get_configurable()) return "of the command line alone: take the line out";
  const bool flag = option->get_expected_min() == 0;
  if (flag != (value.kind == Value::Kind::kBool)) {
    return flag ? "expected true or false, without quotes" : "expected a value, not true or false";
  }
  const bool many = option->get_expected_max() > 1 ||
                    option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  if (value.kind == Value::Kind::kArray && !many) return "expected one value, not an array";
  if (value.texts.empty()) return "the array is empty: take the line out";
  return std::nullopt;
}

}  // namespace

class ConfigFile::Reader : public CLI::ConfigBase {
 public:
  Reader(CLI::App& app, std::shared_ptr<Origin> origin) : app_(app), origin_(std::move(origin)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    origin_->file = app_.get_option("--config")->as<std::string>();
    std::string text;
    for (auto at = std::istreambuf_iterator<char>(input);
         at != std::istreambuf_iterator<char>() && text.size() <= kMostBytes; ++at) {
      text += *at;
    }
    std::vector<CLI::ConfigItem> items;
    std::vector<Fault> faults;
    if (text.size() > kMostBytes) faults.push_back({1, "larger than 1 MiB: not a file of options"});
    Scanner scanner(faults.empty() ? text : "");
    std::map<std::string, int> lines;
    for (scanner.SkipEmptyLines(); !scanner.AtEnd() && faults.size() < kMostFaults;
         scanner.SkipEmptyLines()) {
      try {
        Take(scanner, lines, items);
      } catch (Fault& fault) {
        faults.push_back(std::move(fault));
        scanner.SkipLine();
      }
    }
    if (!faults.empty()) throw CLI::ConfigError(TextOf(faults));
    return items;
  }

 private:
  void Take(Scanner& scanner, std::map<std::string, int>& lines,
            std::vector<CLI::ConfigItem>& items) const {
    const int line = scanner.line();
    const std::string key = scanner.Key();
    Value value;
    try {
      value = scanner.Read();
    } catch (Fault& fault) {
      throw Fault{fault.line, key + ": " + fault.text};
    }
    if (const auto why = WhyNot(app_, key, value)) throw Fault{line, key + ": " + *why};
    const auto [before, fresh] = lines.emplace(key, line);
    if (!fresh) {
      throw Fault{line, key + ": stands in line " + std::to_string(before->second) +
                            " already; several values are an array"};
    }
    if (app_.get_option("--" + key)->empty()) origin_->lines[key] = line;
    CLI::ConfigItem& item = items.emplace_back();
    item.name = key;
    item.inputs = std::move(value.texts);
  }

  std::string TextOf(const std::vector<Fault>& faults) const {
    std::string text;
    for (const Fault& fault : faults) {
      if (!text.empty()) text += '\n';
      text += origin_->file + ":" + std::to_string(fault.line) + ": " + fault.text;
    }
    return text;
  }

  CLI::App& app_;
  const std::shared_ptr<Origin> origin_;
};

ConfigFile::ConfigFile(CLI::App& app) {
  app.config_formatter(std::make_shared<Reader>(app, origin_));
  app.set_config("--config", "",
                 "options from this file, as deploy/config; those given here win. -FILE: it may be "
                 "absent")
      ->type_name("FILE")
      ->transform([](std::string path) {
        if (!path.starts_with('-')) return path;
        path.erase(0, 1);
        const bool absent = access(path.c_str(), F_OK) != 0 && errno == ENOENT;
        return absent ? std::string() : path;
      });
}

std::string ConfigFile::Explain(const CLI::Error& error) const {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::FileError*>(&error) != nullptr) {
    return "--config: the file cannot be read: " + text;
  }
  for (const auto& [key, line] : origin_->lines) {
    const std::string option = "--" + key;
    const size_t at = text.find(option);
    if (at == std::string::npos) continue;
    const size_t end = at + option.size();
    if (end < text.size() && IsBare(text[end])) continue;
    return origin_->file + ":" + std::to_string(line) + ": " + text;
  }
  return text;
}

}  // namespace trireme::coordinator
