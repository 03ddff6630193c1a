// JSON around the message's own JSON.
#include "coordinator/keeper/attempt_record.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/durable.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"
#include "runtime/json/json_text.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;
constexpr size_t kStoreShown = 8;

std::string FolderOf(const std::string& state_folder) { return state_folder + "/attempts"; }

// Jobs of two stores may have one number: the beginning of its UUID tells them apart.
std::string PathOf(const std::string& state_folder, const AttemptRecord& record) {
  std::string store = record.desired.launch().store().store().substr(0, kStoreShown);
  std::replace_if(
      store.begin(), store.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return fmt::format("{}/{}{}{}.json", FolderOf(state_folder),
                     AttemptName(record.desired.job_id(), record.desired.attempt()),
                     store.empty() ? "" : "-", store);
}

std::optional<AttemptRecord> Parse(const std::string& text) {
  const json record = json_text::Parse(text);
  AttemptRecord parsed;
  try {
    if (record.at("version").get<int>() != kVersion) return std::nullopt;
    parsed.boot_id = record.at("boot_id").get<std::string>();
    parsed.begun = record.at("begun").get<bool>();
    parsed.never_started = record.at("never_started").get<std::string>();
    parsed.exit_code = record.at("exit_code").get<int>();
    parsed.stop_at_ns = record.at("stop_at_ns").get<int64_t>();
    // Agents of before had none of these.
    parsed.start_failed = record.value("start_failed", "");
    parsed.cut_off = record.value("cut_off", "");
    parsed.unable = record.value("unable", false);
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = true;  // of a newer program
    const auto status = google::protobuf::util::JsonStringToMessage(
        json_text::Write(record.at("desired")), &parsed.desired, options);
    if (!status.ok()) return std::nullopt;
  } catch (const json::exception&) {
    return std::nullopt;
  }
  return parsed;
}

}  // namespace

std::string AttemptName(uint64_t job_id, uint32_t attempt) {
  return fmt::format("{}-{}", job_id, attempt);
}

absl::Status SaveRecord(const std::string& state_folder, const AttemptRecord& record) {
  std::string desired;
  const auto printed = google::protobuf::util::MessageToJsonString(record.desired, &desired);
  if (!printed.ok()) return absl::InternalError("an attempt cannot be written as JSON");
  const json text = {{"version", kVersion},
                     {"boot_id", record.boot_id},
                     {"begun", record.begun},
                     {"never_started", record.never_started},
                     {"exit_code", record.exit_code},
                     {"unable", record.unable},
                     {"start_failed", record.start_failed},
                     {"stop_at_ns", record.stop_at_ns},
                     {"cut_off", record.cut_off},
                     {"desired", json_text::Parse(desired)}};
  return base::WriteWholeFile(PathOf(state_folder, record), json_text::Write(text, 1) + "\n", 0600);
}

void RemoveRecord(const std::string& state_folder, const AttemptRecord& record) {
  unlink(PathOf(state_folder, record).c_str());
}

absl::StatusOr<std::vector<AttemptRecord>> LoadRecords(const std::string& state_folder) {
  std::vector<AttemptRecord> records;
  // A record lasts only in a folder that does.
  absl::Status made = base::MakeFolders(FolderOf(state_folder));
  if (made.ok()) made = base::SyncWayTo(FolderOf(state_folder));
  if (!made.ok()) return base::Annotate(made, "cannot use the state folder");
  const auto names = base::FolderNames(FolderOf(state_folder));
  if (!names.ok()) {
    return absl::FailedPreconditionError(
        fmt::format("cannot use the state folder: {}", base::MessageOf(names.status())));
  }
  for (const std::string& name : *names) {
    const fs::path path = fs::path(FolderOf(state_folder)) / name;
    std::error_code ignored;
    if (path.extension() == ".partial") fs::remove(path, ignored);
    if (path.extension() != ".json") continue;
    ASSIGN_OR_RETURN(const std::string text, base::ReadWholeFile(path.string()));
    std::optional<AttemptRecord> record = Parse(text);
    if (!record) {
      return absl::DataLossError(
          fmt::format("{}: no record of an attempt; see with ps whether ranks of it run, end them, "
                      "then remove the file",
                      path.string()));
    }
    records.push_back(std::move(*record));
  }
  return records;
}

}  // namespace trireme::keeper
