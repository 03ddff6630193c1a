// Reads guard.json and exit as coordinator/launcher/process_guard.h promises them.
#include "coordinator/keeper/attempt_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "runtime/base/durable.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/pinned_folder.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"
#include "runtime/json/json_text.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMostRecordBytes = 4096;
constexpr size_t kFewestKeyDigits = 16, kMostKeyDigits = 64;

struct Text {
  int error = 0;  // errno
  std::string bytes;
};

Text ReadText(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {errno, ""};
  std::string bytes(kMostRecordBytes, '\0');
  const ssize_t got = read(fd, bytes.data(), bytes.size());
  const int error = got < 0 ? errno : 0;
  close(fd);
  bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return {error, bytes};
}

// All zero, and so no living process, if the text says none.
launcher::ProcessIdentity GuardIn(const std::string& text) {
  const json guard = json_text::Parse(text);
  if (!guard.is_object()) return {};
  try {
    return {guard.at("pid").get<int>(), guard.at("start_ticks").get<uint64_t>(),
            guard.at("boot_id").get<std::string>()};
  } catch (const json::exception&) {
    return {};
  }
}

std::optional<int> ExitCodeIn(const std::string& text) {
  const json verdict = json_text::Parse(text);
  if (!verdict.is_object() || !verdict.contains("exit_code")) return std::nullopt;
  const json& code = verdict["exit_code"];
  return code.is_number_integer() ? std::optional<int>(code.get<int>()) : std::nullopt;
}

// FNV-1a: two run folders of one machine shall not meet in /tmp.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

AttemptOwner OwnerOf(const v1::DesiredAttempt& attempt) {
  AttemptOwner owner;
  owner.job_id = attempt.job_id();
  owner.attempt = attempt.attempt();
  owner.store = attempt.launch().store();
  for (const v1::NodeAllocation& part : attempt.launch().allocation())
    owner.nodes.push_back(part.node());
  return owner;
}

absl::Status WriteOwner(const std::string& folder, const AttemptOwner& owner) {
  const std::string path = folder + "/attempt.json";
  const json text = {{"version", 1},
                     {"job", owner.job_id},
                     {"attempt", owner.attempt},
                     {"store", owner.store.store()},
                     {"epoch", owner.store.epoch()},
                     {"opening", owner.store.opening()},
                     {"nodes", owner.nodes}};
  const absl::Status written = base::WriteNewFile(path, json_text::Write(text, 1) + "\n");
  if (!absl::IsAlreadyExists(written)) return written;
  ASSIGN_OR_RETURN(const AttemptOwner there, ReadOwner(folder));
  if (there.IsSameAttempt(owner)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      fmt::format("{} is of another attempt, as {} says", folder, path));
}

Seen Unreadable(std::string why) {
  Seen seen;
  seen.sight = Sight::kUnreadable;
  seen.words = std::move(why);
  return seen;
}

Seen Unreadable(const std::string& path, int error) {
  return Unreadable(base::MessageOf(base::ErrnoStatus(error, "cannot read " + path)));
}

absl::Status MakeOwnFolder(const std::string& path) {
  const std::string what = "cannot make " + path;
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno != EEXIST) return base::ErrnoStatus(errno, what);
  const absl::Status ours = base::OpenOwnFolder(path).status();
  return ours.ok() ? ours : base::Annotate(ours, what);
}

}  // namespace

absl::StatusOr<uint32_t> NewestAttemptFolder(const std::string& run_folder) {
  ASSIGN_OR_RETURN(const uint64_t newest,
                   base::LargestNumber(run_folder + "/attempts", UINT32_MAX));
  return static_cast<uint32_t>(newest);
}

bool AttemptOwner::IsSameAttempt(const AttemptOwner& other) const {
  return job_id == other.job_id && attempt == other.attempt &&
         store.store() == other.store.store() && store.epoch() == other.store.epoch() &&
         store.opening() == other.store.opening();
}

absl::StatusOr<AttemptOwner> ReadOwner(const std::string& attempt_folder) {
  const std::string path = attempt_folder + "/attempt.json";
  ASSIGN_OR_RETURN(const std::string text, base::ReadWholeFile(path));
  const json said = json_text::Parse(text);
  AttemptOwner owner;
  try {
    owner.job_id = said.at("job").get<uint64_t>();
    owner.attempt = said.at("attempt").get<uint32_t>();
    owner.store.set_store(said.at("store").get<std::string>());
    owner.store.set_opening(said.at("opening").get<uint64_t>());
    owner.nodes = said.at("nodes").get<std::vector<std::string>>();
    owner.store.set_epoch(said.at("epoch").get<uint64_t>());
  } catch (const json::exception&) {
    return absl::DataLossError(path + " does not say whose attempt this is");
  }
  return owner;
}

std::optional<int> ExitCodeOf(const std::string& attempt_folder) {
  return ExitCodeIn(ReadText(attempt_folder + "/exit").bytes);
}

bool IsOver(const std::string& attempt_folder) {
  const Text claimed = ReadText(attempt_folder + "/guard.json");
  if (claimed.error == 0 && claimed.bytes.empty()) return true;
  return ExitCodeOf(attempt_folder).has_value();
}

bool IsLaunchKey(const std::string& key) {
  return key.size() >= kFewestKeyDigits && key.size() <= kMostKeyDigits &&
         key.find_first_not_of("0123456789abcdef") == std::string::npos;
}

AttemptFolder::AttemptFolder(const v1::DesiredAttempt& attempt)
    : path_(fmt::format("{}/attempts/{}", attempt.launch().run_folder(), attempt.attempt())),
      unique_name_(fmt::format("trireme-{}-{}-{:08x}", attempt.job_id(), attempt.attempt(),
                               static_cast<uint32_t>(Hash(path_)))),
      temporary_name_(IsLaunchKey(attempt.launch().key())
                          ? fmt::format("trireme-{}-{}-{}", attempt.job_id(), attempt.attempt(),
                                        attempt.launch().key())
                          : unique_name_),
      owner_(OwnerOf(attempt)) {}

bool AttemptFolder::Exists() const {
  std::error_code error;
  return fs::exists(fs::symlink_status(path_, error));
}

absl::Status AttemptFolder::Make() const {
  for (const char* below : {"/logs", "/recorder"}) {
    RETURN_IF_ERROR(base::MakeFolders(path_ + below));
  }
  if (owner_.IsNamed()) RETURN_IF_ERROR(WriteOwner(path_, owner_));
  // A verdict in a folder that a power cut takes away is none.
  return base::SyncWayTo(path_);
}

Whose AttemptFolder::whose() const {
  if (ours_ || !owner_.IsNamed()) return Whose::kOurs;
  const auto owner = ReadOwner(path_);
  if (!owner.ok()) return absl::IsNotFound(owner.status()) ? Whose::kNotOurs : Whose::kUnknown;
  ours_ = owner->IsSameAttempt(owner_);
  return ours_ ? Whose::kOurs : Whose::kNotOurs;
}

Seen AttemptFolder::Look() const {
  const Whose whose = this->whose();
  if (whose == Whose::kNotOurs) return {};
  if (whose == Whose::kUnknown) return Unreadable(base::MessageOf(ReadOwner(path_).status()));
  const Text claimed = ReadText(path_ + "/guard.json");
  if (claimed.error == ENOENT) return {};
  if (claimed.error != 0) return Unreadable(path_ + "/guard.json", claimed.error);
  if (claimed.bytes.empty()) return {Sight::kSealed, {}, 0, "", ""};
  const launcher::ProcessIdentity guard = GuardIn(claimed.bytes);
  if (launcher::IsAlive(guard)) return {Sight::kLive, guard, 0, "", ""};
  // Read after its death, so that a verdict cannot come in between.
  const Text verdict = ReadText(path_ + "/exit");
  if (verdict.error != 0 && verdict.error != ENOENT) {
    return Unreadable(path_ + "/exit", verdict.error);
  }
  if (const auto code = ExitCodeIn(verdict.bytes)) return {Sight::kExited, {}, *code, "", ""};
  return {Sight::kVanished, {}, 0, "", ""};
}

bool AttemptFolder::IsOver() const { return whose() == Whose::kOurs && keeper::IsOver(path_); }

absl::Status AttemptFolder::Seal() const {
  const Whose whose = this->whose();
  if (whose == Whose::kUnknown) {
    return absl::UnavailableError(path_ + ": the disk does not say whose it is");
  }
  if (whose == Whose::kNotOurs && Exists()) return absl::OkStatus();
  const std::string path = path_ + "/guard.json";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  const int error = errno;
  if (fd >= 0) {
    close(fd);
    return base::SyncFolder(path_);
  }
  if (error == ENOENT) return absl::OkStatus();  // no folder to claim
  if (error != EEXIST) return base::ErrnoStatus(error, "cannot seal " + path_);
  const Text there = ReadText(path);
  if (there.error == 0 && there.bytes.empty()) return base::SyncFolder(path_);
  return absl::AlreadyExistsError(path + ": a guard has claimed it");
}

bool AttemptFolder::Ask(char request) const {
  // Read and write: the write of a FIFO without a reader would send us SIGPIPE.
  const int fd = open((path_ + "/control").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const bool sent = write(fd, &request, 1) == 1;
  close(fd);
  return sent;
}

launcher::TemporaryFolders AttemptFolder::temporary_folders() const {
  return {"/tmp/" + temporary_name_, "/dev/shm/" + temporary_name_};
}

absl::StatusOr<launcher::TemporaryFolders> AttemptFolder::MakeTemporaryFolders() const {
  launcher::TemporaryFolders folders = temporary_folders();
  RETURN_IF_ERROR(MakeOwnFolder(folders.session));
  if (!MakeOwnFolder(folders.shared_memory).ok()) folders.shared_memory = folders.session;
  return folders;
}

void AttemptFolder::RemoveTemporaryFolders() const {
  for (const std::string& path : {temporary_folders().session, temporary_folders().shared_memory}) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
}

}  // namespace trireme::keeper
