#include "runtime/spec/field_path.h"

#include <string>

#include "google/protobuf/descriptor.h"
#include "runtime/base/check.h"

namespace trireme::spec {

FieldRef FindField(const google::protobuf::Message& message, absl::string_view path) {
  FieldRef ref;
  ref.owner = &message;
  while (true) {
    const size_t dot = path.find('.');
    const std::string name(path.substr(0, dot));
    ref.field = ref.owner->GetDescriptor()->FindFieldByName(name);
    TRIREME_CHECK(ref.field != nullptr && !ref.field->is_repeated());
    if (dot == absl::string_view::npos) break;
    ref.owner = &ref.owner->GetReflection()->GetMessage(*ref.owner, ref.field);
    path.remove_prefix(dot + 1);
  }
  ref.present = ref.owner->GetReflection()->HasField(*ref.owner, ref.field);
  return ref;
}

}  // namespace trireme::spec
