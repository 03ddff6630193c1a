// The way of a job: file, overrides, config.json, defaults, rules; faults of all of them are
// reported together.
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/spec/job_spec.h"
#include "runtime/spec/message_fill.h"
#include "runtime/spec/model_config.h"
#include "runtime/spec/read_file.h"
#include "runtime/spec/yaml_document.h"

namespace trireme::spec {
namespace {

namespace fs = std::filesystem;

std::string CurrentFolder() {
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  return error ? "/" : folder.string();
}

// Folder of the file `name`, absolute.
std::string FolderOf(const std::string& name) {
  return (fs::path(CurrentFolder()) / name).lexically_normal().parent_path().string();
}

// A path as people like to read it: relative to the current directory if it lies below it.
std::string ShortPath(const std::string& path) {
  const std::string prefix = CurrentFolder() + "/";
  return absl::StartsWith(path, prefix) ? path.substr(prefix.size()) : path;
}

// A legal job name out of a file name: its stem, other characters as '-'.
std::string NameOf(const std::string& file) {
  std::string name = fs::path(file).stem().string().substr(0, 64);
  for (char& c : name) {
    const bool legal = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || c == '.';
    if (!legal) c = '-';
  }
  return name.empty() || name[0] == '.' ? "job" : name;
}

class JobLoader {
 public:
  explicit JobLoader(std::string name) : name_(std::move(name)) {}

  void ReadText(const std::string& text) {
    YamlNode root;
    YamlError error;
    if (!ParseYaml(text, root, error)) {
      faults_.push_back({{0, name_, error.line}, {"", error.message}});
      broken_ = true;
    } else if (root.kind == YamlNode::Kind::kNull) {
      Refuse("", "is empty; a job needs at least model and data, see docs/job_spec.md");
      broken_ = true;
    } else if (root.kind != YamlNode::Kind::kMap) {
      faults_.push_back(
          {{0, name_, root.line},
           {"", "expected \"name: value\" lines; is there a space after each colon?"}});
      broken_ = true;
    } else {
      FillMessage(root, {0, name_, true, FolderOf(name_)}, job_, positions_, faults_);
    }
  }

  void Override(const std::string& text, int order) {
    FillSource source{order, absl::StrCat("--set ", Printable(text)), false, CurrentFolder()};
    YamlNode root;
    std::string message;
    if (OverrideTree(text, root, message)) {
      FillMessage(root, source, job_, positions_, faults_);
    } else {
      faults_.push_back({{order, source.label, 0}, {"", message}});
    }
  }

  void ReadConfig(int order, std::vector<std::string>* warnings) {
    v1::ModelSpec& model = *job_.mutable_model();
    if (!model.has_config_path()) return;
    const Position where = positions_.Find("model.config_path", Whole());
    const std::string path = model.config_path();
    model.clear_config_path();
    if (path.empty() || path.find('\0') != std::string::npos) {
      faults_.push_back({where, {"model.config_path", "expected the path of a config.json"}});
      return;
    }
    ModelConfigReading reading = ReadModelConfigFile(path, ShortPath(path), order);
    for (PlacedFault& placed : reading.faults) {
      // A file that cannot be read at all is a fault of the line that names it.
      if (placed.position.line == 0 && placed.fault.path.empty()) {
        placed = {where,
                  {"model.config_path", absl::StrCat(ShortPath(path), " ", placed.fault.message)}};
      }
      faults_.push_back(std::move(placed));
      config_refused_ = true;
    }
    if (warnings != nullptr) {
      warnings->insert(warnings->end(), reading.warnings.begin(), reading.warnings.end());
    }
    for (const auto& [field, line] : reading.lines) {
      const v1::ModelConfig& given = model.config();
      if (given.GetReflection()->HasField(given, given.GetDescriptor()->FindFieldByName(field))) {
        continue;
      }
      positions_.Set("model.config." + field, {order, ShortPath(path), line});
    }
    reading.config.MergeFrom(model.config());
    *model.mutable_config() = std::move(reading.config);
  }

  void RefuseConfig() {
    if (!job_.model().has_config_path()) return;
    const std::string field = "model.config_path";
    faults_.push_back({positions_.Find(field, Whole()),
                       {field, "an echo of a job names no other file; this one was changed"}});
    config_refused_ = true;
  }

  absl::StatusOr<v1::JobSpec> Finish() {
    if (!job_.has_name()) job_.set_name(NameOf(name_));
    ApplyDefaults(job_);
    v1::RuntimeSpec& runtime = *job_.mutable_runtime();
    if (!runtime.runs_directory().empty()) {
      runtime.set_runs_directory(AbsolutePath(CurrentFolder(), runtime.runs_directory()));
    }
    if (!broken_) AddRuleFaults();
    if (!faults_.empty()) return absl::InvalidArgumentError(FormatFaults(std::move(faults_)));
    return std::move(job_);
  }

 private:
  Position Whole() const { return {0, name_, 0}; }
  void Refuse(const std::string& path, std::string message) {
    faults_.push_back({Whole(), {path, std::move(message)}});
  }

  // A value that could not be read has been replaced by its default, so a rule's word on it would
  // be noise.
  bool Spoken(const std::string& path, size_t read_faults) const {
    if (config_refused_ && absl::StartsWith(path, "model")) return true;
    const auto below = [](const std::string& inner, const std::string& outer) {
      return absl::StartsWith(inner, outer + ".") || absl::StartsWith(inner, outer + "[");
    };
    return std::any_of(faults_.begin(), faults_.begin() + static_cast<long>(read_faults),
                       [&](const PlacedFault& placed) {
                         const std::string& spoken = placed.fault.path;
                         return spoken == path || below(path, spoken) || below(spoken, path);
                       });
  }

  void AddRuleFaults() {
    const size_t read_faults = faults_.size();
    for (Fault& fault : Validate(job_)) {
      if (Spoken(fault.path, read_faults)) continue;
      const Position position = positions_.Find(fault.path, Whole());
      faults_.push_back({position, std::move(fault)});
    }
  }

  std::string name_;
  v1::JobSpec job_;
  Positions positions_;
  std::vector<PlacedFault> faults_;
  bool broken_ = false;  // the document itself: rules would only complain about what was not read
  bool config_refused_ = false;  // likewise for config.json
};

}  // namespace

absl::StatusOr<v1::JobSpec> ParseJob(const std::string& text, const std::string& name,
                                     std::span<const std::string> overrides,
                                     std::vector<std::string>* warnings) {
  JobLoader loader(name);
  loader.ReadText(text);
  int order = 0;
  for (const std::string& one : overrides) loader.Override(one, ++order);
  loader.ReadConfig(++order, warnings);
  return loader.Finish();
}

absl::StatusOr<v1::JobSpec> ParseEcho(const std::string& text, const std::string& name) {
  JobLoader loader(name);
  loader.ReadText(text);
  loader.RefuseConfig();
  return loader.Finish();
}

absl::StatusOr<v1::JobSpec> LoadJob(const std::string& path, std::span<const std::string> overrides,
                                    std::vector<std::string>* warnings) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxYamlBytes);
  if (!text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", text.status().message()));
  }
  return ParseJob(*text, path, overrides, warnings);
}

}  // namespace trireme::spec
