// A field of a message by its dotted path, as in "parallelism.tensor_parallel_size".
#pragma once

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace trireme::spec {

struct FieldRef {
  const google::protobuf::Message* owner = nullptr;  // the section that holds the field
  const google::protobuf::FieldDescriptor* field = nullptr;
  bool present = false;
};

// `path` must name a field that is not repeated (a CHECK: paths are our own constants).
FieldRef FindField(const google::protobuf::Message& message, absl::string_view path);

}  // namespace trireme::spec
