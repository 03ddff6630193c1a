// A YAML tree into a protobuf message, by reflection: keys are field names, so a new field of the
// .proto needs nothing here. Keeps the side table that tells where each value came from. Field
// kinds: int64, uint64, double, bool, string, lists of those, and messages. Fields whose names end
// in _path, _files or directory hold paths and are made absolute.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "runtime/spec/job_spec.h"
#include "runtime/spec/yaml_document.h"

namespace trireme::spec {

// Where a value was given: "job.yaml" and line 12, or "--set a.b=c" and no line.
struct Position {
  int source = 0;  // order of reading, to sort faults
  std::string label;
  int line = 0;  // from 1; 0: none
  std::string ToString() const;
};

// Field path to position. Paths as in Fault.
class Positions {
 public:
  // Replaces what is known of `path` and everything below it.
  void Set(const std::string& path, Position position);
  // The position of `path`, or of the nearest section around it; `whole` if there is none.
  const Position& Find(absl::string_view path, const Position& whole) const;

 private:
  std::map<std::string, Position, std::less<>> table_;
};

struct PlacedFault {
  Position position;
  Fault fault;
};

// No more than this many faults are looked for: a file with more is not a job file.
inline constexpr size_t kMaxFaults = 100;

// "job.yaml:12: path: message", one per line, in the order of reading, each once, at most
// kMaxFaults.
std::string FormatFaults(std::vector<PlacedFault> faults);

// What a YAML tree comes from.
struct FillSource {
  int order = 0;
  std::string label;
  bool has_lines = true;
  std::string base_folder;  // absolute
};

// Sets the fields that the map `node` names in `message` (merging into sections, replacing lists);
// appends to `faults` and `positions`. A refused value leaves its field as it was.
void FillMessage(const YamlNode& node, const FillSource& source, google::protobuf::Message& message,
                 Positions& positions, std::vector<PlacedFault>& faults);

// Turns "a.b=value" into the tree {a: {b: value}}. False: `message` says what is wrong with it.
bool OverrideTree(const std::string& text, YamlNode& root, std::string& message);

// `path` made absolute against `base_folder` and tidied of "." and "..".
std::string AbsolutePath(const std::string& base_folder, const std::string& path);

}  // namespace trireme::spec
