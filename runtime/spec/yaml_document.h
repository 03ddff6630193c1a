// A hardened reader of one YAML document into a small tree that keeps the line of every key and
// value. Refused with a line: what is not UTF-8, control characters, tabs as indentation, anchors,
// aliases, tags, more than one document, more than kMaxYamlBytes or kMaxYamlDepth. Built on
// yaml-cpp's events; its exceptions stop here.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trireme::spec {

inline constexpr size_t kMaxYamlBytes = 1 << 20;
inline constexpr size_t kMaxYamlDepth = 16;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 1;         // from 1
  bool quoted = false;  // scalars: in quotes, or a block scalar, so never a number
  std::string scalar;
  std::vector<std::string> keys;  // maps: in file order, duplicates kept; keys[i] names children[i]
  std::vector<int> key_lines;     // line of keys[i]
  std::vector<YamlNode> children;
};

// A syntax error of a document.
struct YamlError {
  int line = 0;  // from 1; 0: the whole document
  std::string message;
};

// Parses `text`. False: `error` says why, and `root` is unspecified. An empty document is a kNull
// node.
bool ParseYaml(const std::string& text, YamlNode& root, YamlError& error);

// True if `text` is valid UTF-8; else `offset` is the first bad byte.
bool IsUtf8(absl::string_view text, size_t& offset);

// For messages: at most 60 bytes of `text`, control and non-UTF-8 bytes as \xNN.
std::string Printable(absl::string_view text);

}  // namespace trireme::spec
