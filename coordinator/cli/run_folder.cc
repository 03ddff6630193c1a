// Run folders by name and time; mkdir itself decides who gets a name.
#include "coordinator/cli/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "checkpoint/format/manifest.h"
#include "runtime/base/durable.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

std::string TimeStamp() {
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

absl::Status CannotMake(const std::string& path, const std::error_code& error) {
  return base::ErrnoStatus(error.value(), "cannot make the run folder " + path);
}

// NAME-YYYYMMDD-HHMMSS or the same with -N: so "demo" does not find the runs of "demo-large".
bool IsRunOf(const std::string& folder, const std::string& name) {
  if (folder.size() < name.size() + 16 || folder.compare(0, name.size() + 1, name + "-") != 0) {
    return false;
  }
  const std::string rest = folder.substr(name.size() + 1);
  if (rest.find_first_not_of("0123456789-") != std::string::npos) return false;
  return rest[8] == '-' && (rest.size() == 15 || rest[15] == '-');
}

bool HasCheckpoints(const fs::path& folder) {
  bool found = false;
  base::VisitNames((folder / "checkpoints").string(), [&](const std::string& name) {
    uint64_t step = 0;  // not of one that was set aside as damaged
    found = found || checkpoint::ParseStepFolderName(name, &step);
  }).IgnoreError();
  return found;
}

// -1: it cannot be opened.
int OpenFolder(const std::string& folder) {
  return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// By the lock of LockRunFolder.
bool IsAtWorkIn(const std::string& folder) {
  const int fd = OpenFolder(folder);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}

struct Runs {
  std::string newest;   // with checkpoints
  std::string unsaved;  // at work, without any yet
};

Runs RunsOf(const std::string& runs, const std::string& name) {
  Runs found;
  fs::path newest;
  fs::file_time_type newest_time;
  base::VisitNames(runs, [&](const std::string& entry) {
    const fs::path run = fs::path(runs) / entry;
    if (!IsRunOf(entry, name)) return;
    if (!HasCheckpoints(run)) {
      if (IsAtWorkIn(run.string())) found.unsaved = run.string();
      return;
    }
    std::error_code ignored;
    const auto time = fs::last_write_time(run / "checkpoints", ignored);
    if (newest.empty() || time > newest_time) {
      newest = run;
      newest_time = time;
    }
  }).IgnoreError();
  found.newest = newest.string();
  return found;
}

absl::StatusOr<std::string> MakeNew(const RunFolderRequest& request) {
  std::error_code error;
  fs::create_directories(request.runs_directory, error);
  if (error) return CannotMake(request.runs_directory, error);
  const std::string base =
      fmt::format("{}/{}-{}", request.runs_directory, request.job_name, TimeStamp());
  for (int number = 1; number < 10000; ++number) {
    const std::string path = number == 1 ? base : fmt::format("{}-{}", base, number);
    if (fs::create_directory(path, error)) return path;  // false: it exists
    if (error) return CannotMake(path, error);
  }
  return absl::AlreadyExistsError(fmt::format("{} and thousands like it exist", base));
}

}  // namespace

absl::StatusOr<RunFolder> ChooseRunFolder(const RunFolderRequest& request) {
  if (request.given.empty()) {
    RunFolder chosen;
    if (request.resume) {
      const Runs runs = RunsOf(request.runs_directory, request.job_name);
      if (request.keeps_checkpoints && !runs.unsaved.empty()) {
        return absl::AbortedError(fmt::format(
            "{}: another trireme run is at work there, without a checkpoint yet; wait for its end, "
            "or leave out --resume to begin a run beside it",
            runs.unsaved));
      }
      if (!runs.newest.empty()) return RunFolder{runs.newest, ""};
      chosen.searched = fmt::format("{}/{}-DATE-TIME", request.runs_directory, request.job_name);
    }
    ASSIGN_OR_RETURN(chosen.path, MakeNew(request));
    return chosen;
  }
  std::error_code error;
  const std::string path = fs::absolute(request.given, error).lexically_normal().string();
  if (!request.resume && fs::exists(path + "/job.yaml", error)) {
    return absl::AlreadyExistsError(fmt::format(
        "{} already holds a run; go on with it by --resume auto, or give another --run-dir", path));
  }
  fs::create_directories(path, error);
  if (error) return CannotMake(path, error);
  return RunFolder{path, ""};
}

absl::Status LockRunFolder(const std::string& folder) {
  const int fd = OpenFolder(folder);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return absl::OkStatus();
  close(fd);
  return absl::AbortedError(
      fmt::format("{}: another trireme run is at work there; wait for its end, or give another "
                  "--run-dir",
                  folder));
}

absl::Status WriteFile(const std::string& given, const std::string& text) {
  const auto cannot = [&](int why) { return base::ErrnoStatus(why, "cannot write " + given); };
  std::error_code error;
  const fs::file_status status = fs::status(given, error);
  if (fs::is_directory(status)) {
    return absl::FailedPreconditionError("cannot write " + given + ": it is a folder");
  }
  // A device or pipe is written to; renaming would put a file in its place, also of /dev/null.
  const bool in_place = fs::exists(status) && !fs::is_regular_file(status);
  // Behind a link the file is replaced, not the link.
  const fs::path target = fs::exists(status) ? fs::canonical(given, error) : fs::path(given);
  const std::string path = error ? given : target.string();
  const std::string written = in_place ? path : path + ".partial";
  errno = 0;
  std::ofstream out(written, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) {
    const int why = errno != 0 ? errno : EIO;
    if (!in_place) fs::remove(written, error);
    return cannot(why);
  }
  if (in_place) return absl::OkStatus();
  error.clear();
  fs::rename(written, path, error);
  return error ? cannot(error.value()) : absl::OkStatus();
}

std::string ReadFile(const std::string& path) {
  // Metrics of a long run are large.
  return base::ReadWholeFile(path, size_t{1} << 40).value_or("");
}

}  // namespace trireme::cli
