#include "runtime/spec/message_fill.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/descriptor.h"
#include "runtime/base/check.h"
#include "runtime/spec/suggestion.h"

namespace trireme::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool IsPathField(const FieldDescriptor& field) {
  return absl::EndsWith(field.name(), "_path") || absl::EndsWith(field.name(), "_files") ||
         absl::EndsWith(field.name(), "directory");
}

// Lists of which one value for all is common.
bool TakesOneForAll(const FieldDescriptor& field) { return field.name() == "recompute"; }

// What a value of the field looks like, with an example.
std::string Expected(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return "a whole number";
    case FieldDescriptor::CPPTYPE_UINT64:
      return "a whole number from 0";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    default:
      return "a text";
  }
}

std::string Shown(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a section";
    case YamlNode::Kind::kScalar:
      return node.quoted ? absl::StrCat("the text \"", Printable(node.scalar), "\"")
                         : Printable(node.scalar);
  }
  return "";
}

// Empty: `value` holds the number. Else what is wrong.
template <typename Integer>
std::string ParseInteger(const std::string& text, Integer& value) {
  const char* begin = text.data() + (absl::StartsWith(text, "+") ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range && stop == end) {
    return absl::StrCat(Printable(text), " is out of range, expected at most ",
                        std::numeric_limits<Integer>::max(), " in size");
  }
  if (error != std::errc() || stop != end || begin == end) return "no";
  return "";
}

std::string ParseDouble(const std::string& text, double& value) {
  const absl::string_view word =
      absl::string_view(text).substr(std::min(text.find_first_not_of("+-."), text.size()));
  for (const char* name : {"nan", "inf", "infinity"}) {
    if (absl::EqualsIgnoreCase(word, name)) {
      return absl::StrCat("expected a finite number, got ", text);
    }
  }
  const char* begin = text.data() + (absl::StartsWith(text, "+") ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range && stop == end) {
    return absl::StrCat(Printable(text),
                        " is out of the range of a double (about 1e-308 to 1e308)");
  }
  if (error != std::errc() || stop != end || begin == end || !std::isfinite(value)) return "no";
  return "";
}

class Filler {
 public:
  Filler(const FillSource& source, const google::protobuf::Descriptor& root, Positions& positions,
         std::vector<PlacedFault>& faults)
      : source_(source), root_(root), positions_(positions), faults_(faults) {}

  void Section(const YamlNode& node, const std::string& path, Message& message) {
    if (node.kind == YamlNode::Kind::kNull) return;
    const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
    if (node.kind != YamlNode::Kind::kMap) {
      Refuse(path, node.line,
             absl::StrCat("expected a section of \"", descriptor.field(0)->name(),
                          ": value\" lines, got ", Shown(node)));
      return;
    }
    std::map<std::string, int> seen;
    for (size_t i = 0; i < node.keys.size() && faults_.size() < kMaxFaults; ++i) {
      const std::string& key = node.keys[i];
      const int line = node.key_lines[i];
      const std::string child = absl::StrCat(path, path.empty() ? "" : ".", Printable(key));
      const FieldDescriptor* field = descriptor.FindFieldByName(key);
      if (field == nullptr) {
        Refuse(child, line, absl::StrCat("unknown field", SuggestField(descriptor, root_, key)));
      } else if (const auto [first, fresh] = seen.emplace(key, line); !fresh) {
        Refuse(child, line,
               absl::StrCat("given twice, first on line ", first->second, "; remove one of them"));
      } else {
        // The section around the field of a --set was given by another, or is nobody's.
        const bool section = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
        if (source_.has_lines || !section) positions_.Set(child, At(line));
        Field(node.children[i], child, line, *field, message);
      }
    }
  }

 private:
  void Field(const YamlNode& node, const std::string& path, int line, const FieldDescriptor& field,
             Message& message) {
    const Reflection& reflection = *message.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      TRIREME_CHECK(!field.is_repeated());
      Section(node, path, *reflection.MutableMessage(&message, &field));
      return;
    }
    if (node.kind == YamlNode::Kind::kNull) {
      Refuse(path, line, "has no value; give one, or remove the line for the default");
    } else if (!field.is_repeated()) {
      Scalar(node, path, field, message);
    } else if (node.kind == YamlNode::Kind::kList) {
      reflection.ClearField(&message, &field);
      for (size_t i = 0; i < node.children.size() && faults_.size() < kMaxFaults; ++i) {
        const std::string element = absl::StrCat(path, "[", i, "]");
        positions_.Set(element, At(node.children[i].line));
        Scalar(node.children[i], element, field, message);
      }
    } else if (node.kind == YamlNode::Kind::kScalar && TakesOneForAll(field)) {
      reflection.ClearField(&message, &field);
      Scalar(node, path, field, message);
    } else {
      const std::string example = node.kind == YamlNode::Kind::kScalar
                                      ? absl::StrCat("; write [", Printable(node.scalar), "]")
                                      : "; write [first, second]";
      Refuse(path, node.line, absl::StrCat("expected a list, got ", Shown(node), example));
    }
  }

  void Scalar(const YamlNode& node, const std::string& path, const FieldDescriptor& field,
              Message& message) {
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (node.kind != YamlNode::Kind::kScalar || (node.quoted && !is_text)) {
      const bool only_quotes = node.kind == YamlNode::Kind::kScalar;
      Refuse(path, node.line,
             absl::StrCat("expected ", Expected(field), ", got ", Shown(node),
                          only_quotes ? "; remove the quotes" : ""));
      return;
    }
    std::string wrong = Store(node.scalar, field, message);
    if (wrong.empty()) return;
    if (wrong == "no") {
      wrong = absl::StrCat("expected ", Expected(field), ", got ", Shown(node));
      double number = 0;
      if (field.cpp_type() != FieldDescriptor::CPPTYPE_BOOL &&
          ParseDouble(node.scalar, number).empty() && std::abs(number) < 1e15 &&
          number == std::floor(number) && number >= 0) {
        absl::StrAppend(&wrong, "; write ", static_cast<int64_t>(number));
      }
    }
    Refuse(path, node.line, wrong);
  }

  // Sets or adds the value. Returns "" if stored, "no" for the wrong kind of text, else what is
  // wrong.
  std::string Store(const std::string& text, const FieldDescriptor& field, Message& message) {
    const Reflection& reflection = *message.GetReflection();
    const bool list = field.is_repeated();
    std::string wrong;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64: {
        int64_t value = 0;
        wrong = ParseInteger(text, value);
        if (!wrong.empty()) return wrong;
        list ? reflection.AddInt64(&message, &field, value)
             : reflection.SetInt64(&message, &field, value);
        return "";
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        uint64_t value = 0;
        wrong = ParseInteger(text, value);
        if (!wrong.empty()) return wrong;
        list ? reflection.AddUInt64(&message, &field, value)
             : reflection.SetUInt64(&message, &field, value);
        return "";
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        double value = 0;
        wrong = ParseDouble(text, value);
        if (!wrong.empty()) return wrong;
        list ? reflection.AddDouble(&message, &field, value)
             : reflection.SetDouble(&message, &field, value);
        return "";
      }
      case FieldDescriptor::CPPTYPE_BOOL: {
        if (text != "true" && text != "false") return "no";
        list ? reflection.AddBool(&message, &field, text == "true")
             : reflection.SetBool(&message, &field, text == "true");
        return "";
      }
      default:
        break;
    }
    TRIREME_CHECK(field.cpp_type() == FieldDescriptor::CPPTYPE_STRING);
    size_t bad = 0;
    if (!IsUtf8(text, bad)) return "expected UTF-8 text";
    const std::string value =
        IsPathField(field) && !text.empty() ? AbsolutePath(source_.base_folder, text) : text;
    list ? reflection.AddString(&message, &field, value)
         : reflection.SetString(&message, &field, value);
    return "";
  }

  Position At(int line) const {
    return {source_.order, source_.label, source_.has_lines ? line : 0};
  }
  void Refuse(const std::string& path, int line, std::string message) {
    faults_.push_back({At(line), {path, std::move(message)}});
  }

  const FillSource& source_;
  const google::protobuf::Descriptor& root_;
  Positions& positions_;
  std::vector<PlacedFault>& faults_;
};

}  // namespace

std::string Position::ToString() const { return line > 0 ? absl::StrCat(label, ":", line) : label; }

void Positions::Set(const std::string& path, Position position) {
  auto below = table_.lower_bound(path);
  while (below != table_.end() && absl::StartsWith(below->first, path)) {
    const bool inside = below->first.size() == path.size() || below->first[path.size()] == '.' ||
                        below->first[path.size()] == '[';
    below = inside ? table_.erase(below) : std::next(below);
  }
  table_[path] = std::move(position);
}

const Position& Positions::Find(absl::string_view path, const Position& whole) const {
  while (!path.empty()) {
    const auto found = table_.find(path);
    if (found != table_.end()) return found->second;
    const size_t cut = path.find_last_of(".[");
    path = path.substr(0, cut == absl::string_view::npos ? 0 : cut);
  }
  return whole;
}

std::string FormatFaults(std::vector<PlacedFault> faults) {
  std::stable_sort(faults.begin(), faults.end(), [](const PlacedFault& a, const PlacedFault& b) {
    return std::pair(a.position.source, a.position.line) <
           std::pair(b.position.source, b.position.line);
  });
  std::vector<std::string> lines;
  std::set<std::string> seen;
  for (const PlacedFault& placed : faults) {
    std::string line = absl::StrCat(placed.position.ToString(), ": ", placed.fault.path,
                                    placed.fault.path.empty() ? "" : ": ", placed.fault.message);
    if (seen.insert(line).second) lines.push_back(std::move(line));
    if (lines.size() == kMaxFaults) {
      lines.push_back(absl::StrCat("(only the first ", kMaxFaults, " faults are listed)"));
      break;
    }
  }
  return absl::StrJoin(lines, "\n");
}

void FillMessage(const YamlNode& node, const FillSource& source, Message& message,
                 Positions& positions, std::vector<PlacedFault>& faults) {
  Filler(source, *message.GetDescriptor(), positions, faults).Section(node, "", message);
}

bool OverrideTree(const std::string& text, YamlNode& root, std::string& message) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    message = "expected name=value, as in training.steps=100";
    return false;
  }
  const std::vector<std::string> names = absl::StrSplit(text.substr(0, equals), '.');
  if (names.size() > kMaxYamlDepth) {
    message = "names too many sections";
    return false;
  }
  const std::string value = text.substr(equals + 1);
  YamlNode tree;
  // Only what begins like YAML syntax is read as YAML: a prompt may hold ": " or "#".
  if (!value.empty() && absl::string_view("\"'[{").find(value[0]) != absl::string_view::npos) {
    YamlError error;
    if (!ParseYaml(value, tree, error)) {
      message = error.message;
      return false;
    }
  } else if (!value.empty()) {
    tree.kind = YamlNode::Kind::kScalar;
    tree.scalar = value;
  }
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    YamlNode parent;
    parent.kind = YamlNode::Kind::kMap;
    parent.keys = {*name};
    parent.key_lines = {1};
    parent.children.push_back(std::move(tree));
    tree = std::move(parent);
  }
  root = std::move(tree);
  return true;
}

std::string AbsolutePath(const std::string& base_folder, const std::string& path) {
  return (std::filesystem::path(base_folder) / path).lexically_normal().string();
}

}  // namespace trireme::spec
