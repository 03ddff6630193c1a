// "Did you mean ...?" for names that do not exist, in a section or anywhere in a message.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace trireme::spec {

// The words that follow "unknown field" for `name` in a section of type `section` of a message of
// type `root`: ", did you mean X?" or "; known here: A, B".
std::string SuggestField(const google::protobuf::Descriptor& section,
                         const google::protobuf::Descriptor& root, absl::string_view name);

// The name that was meant by `word`, if one of them is near enough for a word of this length; else
// empty.
std::string NearestName(absl::string_view word, const std::vector<std::string>& names);

// Edits (insert, delete, replace, swap of neighbours) from `word` to `candidate`, where leaving off
// the end of the candidate costs a quarter of its length only: tensor_paralel is near
// tensor_parallel_size.
double NameDistance(absl::string_view word, absl::string_view candidate);

}  // namespace trireme::spec
