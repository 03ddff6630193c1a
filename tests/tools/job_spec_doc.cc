// Makes docs/job_spec.md from the comments of proto/trireme/v1/job_spec.proto and the values of
// ApplyDefaults:
//   job_spec_doc <repository> write   writes the page
//   job_spec_doc <repository> check   exit code 1 unless the committed page is current and every
//   field has a comment
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "runtime/spec/job_spec.h"

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::SourceLocation;

// Lines joined to one text, as a table cell and a paragraph need it.
std::string OneLine(const std::string& comment) {
  std::string out;
  for (absl::string_view line : absl::StrSplit(comment, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty()) absl::StrAppend(&out, out.empty() ? "" : " ", line);
  }
  return out;
}

template <typename Element>
std::string CommentOf(const Element& element) {
  SourceLocation location;
  return element.GetSourceLocation(&location) ? OneLine(location.leading_comments) : "";
}

std::string TypeOf(const FieldDescriptor& field) {
  std::string name = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE  ? "section"
                     : field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ? "text"
                     : field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ? "number"
                     : field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL   ? "true or false"
                                                                           : "whole number";
  return field.is_repeated() ? "list of " + name + "s" : name;
}

// The value of "a.b" in the YAML echo of a job; empty if absent.
std::string ValueIn(const std::string& yaml, const std::string& path) {
  std::vector<std::string> section;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(yaml, '\n'))) {
    const size_t depth = line.find_first_not_of(' ') / 2;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    section.resize(depth);
    section.push_back(line.substr(2 * depth, colon - 2 * depth));
    std::string here;
    for (const std::string& name : section) absl::StrAppend(&here, here.empty() ? "" : ".", name);
    if (here == path && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "";
}

struct Defaults {
  std::string gpt2;
  std::string llama;
};

std::string DefaultsOf(const std::string& family) {
  trireme::v1::JobSpec job;
  job.mutable_model()->mutable_config()->set_model_type(family);
  trireme::spec::ApplyDefaults(job);
  job.clear_name();
  job.mutable_model()->mutable_config()->clear_model_type();
  return trireme::spec::ToYaml(job);
}

// False if a field has no comment.
bool AppendSection(const Descriptor& message, const std::string& path, const Defaults& defaults,
                   std::string& out) {
  bool complete = true;
  absl::StrAppend(&out, "\n## ", path.empty() ? "The job" : path, "\n", CommentOf(message), "\n\n",
                  "| field | type | default | meaning |\n|---|---|---|---|\n");
  const std::string prefix = path.empty() ? "" : path + ".";
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string comment = CommentOf(field);
    if (comment.empty()) {
      std::cerr << message.name() << "." << field.name() << " has no comment\n";
      complete = false;
    }
    const std::string gpt2 = ValueIn(defaults.gpt2, prefix + field.name());
    const std::string llama = ValueIn(defaults.llama, prefix + field.name());
    std::string value = gpt2.empty() ? "" : absl::StrCat("`", gpt2, "`");
    if (gpt2 != llama) value = absl::StrCat("gpt2 `", gpt2, "`, llama `", llama, "`");
    absl::StrAppend(&out, "| `", field.name(), "` | ", TypeOf(field), " | ", value, " | ",
                    absl::StrReplaceAll(comment, {{"|", "\\|"}}), " |\n");
  }
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    complete &= AppendSection(*field.message_type(), prefix + field.name(), defaults, out);
  }
  return complete;
}

constexpr char kHead[] =
    "# The job file\n"
    "<!-- Made by the target job_spec_doc from proto/trireme/v1/job_spec.proto; do not edit. -->\n"
    "\n"
    "A job is one YAML file; every field can also be given as `--set a.b=c` (`--set a.b=[1,2]` "
    "for\n"
    "lists), which wins over the file. What is absent takes its default; where a default follows\n"
    "from other fields, the table shows it for a job that gives nothing else. Unknown names, "
    "wrong\n"
    "types and values out of range are refused, all at once, with file and line. Relative paths\n"
    "in the file start at its folder, those of `--set` at the current directory. Examples are in\n"
    "`deploy/examples/`. Anchors, aliases, tags and tabs as indentation are not part of the "
    "format;\n"
    "a file has at most 1 MiB.\n";

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 4 ? argv[3] : "";
  if (mode != "write" && mode != "check") {
    std::cerr << "usage: job_spec_doc <descriptors> <page> write|check\n";
    return 2;
  }
  std::ifstream descriptors(argv[1], std::ios::binary);
  google::protobuf::FileDescriptorSet set;
  if (!set.ParseFromIstream(&descriptors) || set.file_size() != 1) {
    std::cerr << argv[1] << ": expected the descriptors of job_spec.proto alone\n";
    return 1;
  }
  google::protobuf::DescriptorPool pool;
  const google::protobuf::FileDescriptor* file = pool.BuildFile(set.file(0));
  if (file == nullptr) return 1;
  std::string page = kHead;
  const Defaults defaults{DefaultsOf("gpt2"), DefaultsOf("llama")};
  if (!AppendSection(*file->FindMessageTypeByName("JobSpec"), "", defaults, page)) return 1;

  const std::string path = argv[2];
  if (mode == "write") return (std::ofstream(path, std::ios::binary) << page).good() ? 0 : 1;
  std::ifstream stream(path, std::ios::binary);
  const std::string committed((std::istreambuf_iterator<char>(stream)),
                              std::istreambuf_iterator<char>());
  if (committed == page) return 0;
  std::cerr << path << " is not current; build the target job_spec_doc and commit the page\n";
  return 1;
}
