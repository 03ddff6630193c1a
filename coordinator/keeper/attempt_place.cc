#include "coordinator/keeper/attempt_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "coordinator/run_files/run_owner.h"
#include "runtime/base/status_macros.h"

namespace trireme::keeper {
namespace {

std::string NotSeen(const std::string& run_folder, const std::string& what) {
  return fmt::format(
      "its run folder {} is not to be seen here{}; is the file system of it mounted?", run_folder,
      what.empty() ? "" : ": " + what);
}

// 0: there; else errno.
int ErrorOf(int folder, const std::string& name) {
  struct stat ignored;
  return fstatat(folder, name.c_str(), &ignored, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

// What the opened folder lacks of a run folder of the attempt; empty: nothing.
std::string WhyNotIts(int folder, const v1::DesiredAttempt& attempt, bool claimed) {
  const auto owner = coordinator::ReadRunOwner(fmt::format("/proc/self/fd/{}", folder));
  if (owner.ok()) {
    const std::string& store = attempt.launch().store().store();
    const bool its = owner->job == attempt.job_id() && (store.empty() || owner->store == store);
    return its ? "" : "run.json there is of another job";
  }
  if (!absl::IsNotFound(owner.status())) return "run.json there cannot be read";
  if (claimed) return "there is no run.json";
  return ErrorOf(folder, "attempts") == 0 ? "" : "there are no attempts";
}

PlaceSeen PlaceIn(int folder, const v1::DesiredAttempt& attempt, bool claimed) {
  const std::string& run_folder = attempt.launch().run_folder();
  const std::string name = fmt::format("attempts/{}", attempt.attempt());
  const int error = ErrorOf(folder, name);
  if (error == 0) {
    if (ErrorOf(folder, name + "/guard.json") == ENOENT) return {Place::kThere, ""};
    return {Place::kClaimed, fmt::format("{} was away a moment ago", run_folder)};
  }
  std::string why = WhyNotIts(folder, attempt, claimed);
  if (why.empty() && error == ENOENT) return {Place::kRemoved, ""};
  if (why.empty()) why = std::error_code(error, std::generic_category()).message();
  return {Place::kAway, NotSeen(run_folder, why)};
}

}  // namespace

std::string WhyNotThere(const std::string& run_folder) {
  std::error_code error;
  if (std::filesystem::is_directory(run_folder, error)) return "";
  return NotSeen(run_folder, error ? error.message() : "");
}

PlaceSeen LookForPlace(const v1::DesiredAttempt& attempt, bool claimed) {
  const std::string& run_folder = attempt.launch().run_folder();
  const int folder = open(run_folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    const std::error_code error(errno, std::generic_category());
    return {Place::kAway, NotSeen(run_folder, error.message())};
  }
  PlaceSeen seen = PlaceIn(folder, attempt, claimed);
  close(folder);
  return seen;
}

}  // namespace trireme::keeper
