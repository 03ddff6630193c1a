// The echo of a job as YAML, and the hash that guards a resume. Both walk the message by reflection
// in field order, with doubles in the shortest form that reads back to the same bits.
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "runtime/base/check.h"
#include "runtime/base/fnv1a.h"
#include "runtime/spec/job_spec.h"

namespace trireme::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char character : text) {
    const auto c = static_cast<unsigned char>(character);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += character;
    } else if (c < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&out, "\\x%02x", c);
    } else {
      out += character;
    }
  }
  return out + "\"";
}

std::string Number(double value) {
  std::array<char, 40> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  TRIREME_CHECK(error == std::errc());
  return std::string(buffer.data(), end);
}

// One value: `index` of a list, or -1.
std::string Value(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool list = index >= 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(list ? reflection.GetRepeatedInt64(message, &field, index)
                               : reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(list ? reflection.GetRepeatedUInt64(message, &field, index)
                               : reflection.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(list ? reflection.GetRepeatedDouble(message, &field, index)
                         : reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return (list ? reflection.GetRepeatedBool(message, &field, index)
                   : reflection.GetBool(message, &field))
                 ? "true"
                 : "false";
    default:
      break;
  }
  TRIREME_CHECK(field.cpp_type() == FieldDescriptor::CPPTYPE_STRING);
  return Quoted(list ? reflection.GetRepeatedString(message, &field, index)
                     : reflection.GetString(message, &field));
}

std::string List(const Message& message, const FieldDescriptor& field) {
  std::string out = "[";
  const int size = message.GetReflection()->FieldSize(message, &field);
  for (int i = 0; i < size; ++i) {
    absl::StrAppend(&out, i > 0 ? ", " : "", Value(message, field, i));
  }
  return out + "]";
}

bool IsPresent(const Message& message, const FieldDescriptor& field) {
  return field.is_repeated() ? message.GetReflection()->FieldSize(message, &field) > 0
                             : message.GetReflection()->HasField(message, &field);
}

void AppendYaml(const Message& message, const std::string& indentation, std::string& out) {
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (!IsPresent(message, field)) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      absl::StrAppend(&out, indentation, field.name(), ":\n");
      AppendYaml(message.GetReflection()->GetMessage(message, &field), indentation + "  ", out);
    } else {
      absl::StrAppend(&out, indentation, field.name(), ": ",
                      field.is_repeated() ? List(message, field) : Value(message, field, -1), "\n");
    }
  }
}

// "path=value" lines of what a bit-exact resume depends on; zero and absent values add nothing, so
// that a field added later with the default 0 leaves old hashes as they are.
void AppendCanonical(const Message& message, const std::string& path, std::string& out) {
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (!IsPresent(message, field)) continue;
    const std::string name = absl::StrCat(path, ".", field.name());
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AppendCanonical(message.GetReflection()->GetMessage(message, &field), name, out);
      continue;
    }
    const std::string value =
        field.is_repeated() ? List(message, field) : Value(message, field, -1);
    if (value == "0" || value == "-0" || value == "false" || value == "\"\"") continue;
    absl::StrAppend(&out, name, "=", value, "\n");
  }
}

}  // namespace

std::string ToYaml(const v1::JobSpec& spec) {
  std::string out;
  AppendYaml(spec, "", out);
  return out;
}

namespace {

// The lines that SpecHash hears.
std::string Canonical(const v1::JobSpec& spec) {
  v1::JobSpec kept;
  kept.set_seed(spec.seed());
  *kept.mutable_model()->mutable_config() = spec.model().config();
  *kept.mutable_data() = spec.data();
  for (std::string& file : *kept.mutable_data()->mutable_text_files()) {
    file = file.substr(file.rfind('/') + 1);
  }
  *kept.mutable_training() = spec.training();
  kept.mutable_training()->clear_steps();
  // How much memory a step takes: last bits change, as with another layout.
  kept.mutable_training()->clear_micro_batch_size();
  kept.mutable_training()->clear_loss_tile_rows();
  if (spec.training().gradient_transfer() == "f32") {
    kept.mutable_training()->clear_gradient_transfer();  // as in jobs that do not know it
  }
  *kept.mutable_optimizer() = spec.optimizer();
  // What is off changes nothing. Which messages are large enough is a matter of layout.
  const v1::CompressionSpec& compression = spec.compression();
  if (compression.data_parallel().mode() != "off") {
    *kept.mutable_compression()->mutable_data_parallel() = compression.data_parallel();
    kept.mutable_compression()->mutable_data_parallel()->clear_min_bytes();
  }
  if (compression.pipeline().mode() != "off") {
    *kept.mutable_compression()->mutable_pipeline() = compression.pipeline();
    kept.mutable_compression()->mutable_pipeline()->clear_min_bytes();
  }
  std::string canonical;
  AppendCanonical(kept, "", canonical);
  return canonical;
}

std::map<std::string, std::string> Values(const v1::JobSpec& spec) {
  std::map<std::string, std::string> values;
  for (const absl::string_view line : absl::StrSplit(Canonical(spec), '\n', absl::SkipEmpty())) {
    const size_t equals = line.find('=');
    values.emplace(line.substr(1, equals - 1), line.substr(equals + 1));
  }
  return values;
}

// That of `spec` where `values` leave it out: a default, or of a section that is off.
std::string ValueOf(const v1::JobSpec& spec, const std::map<std::string, std::string>& values,
                    const std::string& name) {
  const auto found = values.find(name);
  if (found != values.end()) return found->second;
  const Message* owner = &spec;
  for (const absl::string_view part : absl::StrSplit(name, '.')) {
    const FieldDescriptor* field = owner->GetDescriptor()->FindFieldByName(std::string(part));
    if (!IsPresent(*owner, *field)) break;
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return field->is_repeated() ? List(*owner, *field) : Value(*owner, *field, -1);
    }
    owner = &owner->GetReflection()->GetMessage(*owner, field);
  }
  return "absent";
}

}  // namespace

uint64_t SpecHash(const v1::JobSpec& spec) { return base::Fnv1a(Canonical(spec)); }

ResumeDifferences CompareForResume(const v1::JobSpec& there, const v1::JobSpec& here) {
  const std::map<std::string, std::string> old_values = Values(there), new_values = Values(here);
  std::map<std::string, std::string> fields = old_values;
  fields.insert(new_values.begin(), new_values.end());
  ResumeDifferences differences;
  for (const auto& [name, value] : fields) {
    const std::string was = ValueOf(there, old_values, name), is = ValueOf(here, new_values, name);
    if (was == is) continue;
    const bool may_change =
        absl::StartsWith(name, "optimizer.") || absl::StartsWith(name, "compression.") ||
        name == "training.nonfinite_policy" || name == "training.gradient_transfer";
    (may_change ? differences.changed : differences.forbidden)
        .push_back(absl::StrCat(name, ": ", was, " there, ", is, " here"));
  }
  return differences;
}

}  // namespace trireme::spec
