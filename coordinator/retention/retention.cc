// By openat and unlinkat from the folder down, so that no link that a rank has left there leads
// out.
#include "coordinator/retention/retention.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "coordinator/job_machine/job_machine.h"
#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/run_files/run_owner.h"
#include "runtime/base/folder_names.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kHourNs = int64_t{3600} * 1000000000;
constexpr int64_t kShortestNs = 200000000;  // of a test
constexpr int kDeepest = 64;                // each holds a descriptor; ranks make no such folders
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
// What says whose the folder is goes last, so that a removal that is cut short is taken up again.
const std::set<std::string>& Last() {
  static const std::set<std::string> names{"run.json"};
  return names;
}
const std::set<std::string>& WithCheckpoints() {
  static const std::set<std::string> names{"run.json", "job.yaml", "checkpoints"};
  return names;
}

int64_t DaysNs(double days) {
  return static_cast<int64_t>(days * 24 * static_cast<double>(kHourNs));
}

// Of a job or an attempt.
std::optional<uint64_t> NumberOf(const std::string& name) {
  const auto number = base::NumberIn(name);
  return number == uint64_t{0} ? std::nullopt : number;
}

int64_t ChangedNs(const struct stat& about) {
  return about.st_mtim.tv_sec * int64_t{1000000000} + about.st_mtim.tv_nsec;
}

bool Exists(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  base::VisitNames(folder, [&](const std::string& name) { names.push_back(name); }).IgnoreError();
  return names;
}

// Of what lies in it; not of folders, which a removal that was cut short has changed.
int64_t NewestIn(const std::string& folder) {
  int64_t newest = 0;
  for (const std::string& name : NamesIn(folder)) {
    struct stat about {};
    if (lstat((folder + "/" + name).c_str(), &about) != 0 || S_ISDIR(about.st_mode)) continue;
    newest = std::max(newest, ChangedNs(about));
  }
  return newest;
}

bool IsOver(const v1::Job& job) {
  return HasEnded(job.status().state()) && !job.status().attempt_live();
}

// Of a job that nothing is known of any more: its logs, as long as its ranks said anything.
int64_t NewestInRun(const std::string& run) {
  int64_t newest = std::max(NewestIn(run), NewestIn(run + "/timeline"));
  for (const std::string& attempt : NamesIn(run + "/attempts")) {
    const std::string path = run + "/attempts/" + attempt;
    newest = std::max({newest, NewestIn(path), NewestIn(path + "/logs")});
  }
  return newest;
}

}  // namespace

Retention::Retention(RetentionOptions options, Find find)
    : options_(std::move(options)), find_(std::move(find)) {}

void Retention::Stop() {
  const absl::MutexLock lock(&find_mutex_);
  stopping_ = true;
}

absl::StatusOr<std::optional<v1::Job>> Retention::Known(uint64_t id) {
  const absl::MutexLock lock(&find_mutex_);
  if (stopping_) return absl::CancelledError("retention is stopped");
  return find_(id);
}

void Retention::RemoveOf(const Victims& announced, Victims& victims, const char* why) {
  for (const auto& [path, part] : announced) {
    const auto still = victims.find(path);
    if (stopping_ || files_left_ == 0) break;
    if (still == victims.end() || still->second != part) continue;
    if (!Remove(path, part, why)) continue;
    victims.erase(still);
    if (part == Part::kLogs) continue;
    for (std::vector<Sized>* sized : {&sized_, &measuring_.sized}) {
      std::erase_if(*sized, [this, &run = path](const Sized& one) { return RunOf(one.id) == run; });
    }
  }
}

int64_t Retention::Look(int64_t now_unix_ns) {
  files_left_ = options_.most_files;
  measured_ = 0;
  Victims victims = FindOld(now_unix_ns);
  Victims too_much;
  if (options_.run_bytes > 0) {
    MeasureOn();
    too_much = FindTooMuch(victims);
  }
  RemoveOf(announced_, victims, "by its age");
  Announce(victims, "--keep-run-folders");
  announced_ = std::move(victims);
  if (options_.run_bytes > 0) {
    RemoveOf(announced_for_size_, too_much, "for the room that run folders take");
    announced_for_size_ = FindTooMuch(announced_);
    Announce(announced_for_size_, "--keep-run-bytes");
  }
  int64_t every = kHourNs;
  for (const double days : {options_.run_days, options_.log_days}) {
    if (days > 0) every = std::min(every, std::max(kShortestNs, DaysNs(days / 24)));
  }
  return now_unix_ns + every;
}

int64_t Retention::Turn(int64_t now_unix_ns) {
  using std::chrono::nanoseconds;
  const auto now = std::chrono::steady_clock::now();
  if (now < due_) return now_unix_ns + nanoseconds(due_ - now).count();
  const int64_t next = Look(now_unix_ns);
  due_ = now + nanoseconds(next - now_unix_ns);
  return next;
}

std::string Retention::RunOf(uint64_t id) const {
  return fmt::format("{}/{}", options_.jobs_folder, id);
}

std::vector<uint64_t> Retention::Runs() const {
  std::vector<uint64_t> ids;
  for (const std::string& name : NamesIn(options_.jobs_folder)) {
    if (const auto id = NumberOf(name)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Retention::Victims Retention::FindOld(int64_t now_unix_ns) {
  Victims victims;
  if (options_.run_days <= 0 && options_.log_days <= 0) return victims;
  for (const uint64_t id : Runs()) {
    if (stopping_ || victims.size() >= options_.most_folders) break;
    FindIn(id, now_unix_ns, victims);
  }
  return victims;
}

bool Retention::IsOurs(const std::string& run, uint64_t id) const {
  const auto owner = ReadRunOwner(run);
  return owner.ok() && owner->job == id && owner->store == options_.store;
}

// A store put back from a backup knows nothing of what its later state has begun.
std::optional<int64_t> Retention::SilentSince(const std::string& run) {
  const auto newest = keeper::NewestAttemptFolder(run);
  if (!newest.ok()) return std::nullopt;
  if (*newest > 0 && !keeper::IsOver(fmt::format("{}/attempts/{}", run, *newest))) {
    return std::nullopt;
  }
  return NewestInRun(run);
}

std::optional<Retention::Part> Retention::PartOf(const std::string& run, uint64_t id) {
  if (options_.checkpoints || !Exists(run + "/checkpoints")) return Part::kRun;
  const std::vector<std::string> names = NamesIn(run);
  const bool only = std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return WithCheckpoints().contains(name);
  });
  if (!only) return Part::kRunButCheckpoints;
  done_.insert(id);
  return std::nullopt;
}

void Retention::FindIn(uint64_t id, int64_t now_unix_ns, Victims& victims) {
  const std::string run = RunOf(id);
  const int64_t runs_before = now_unix_ns - DaysNs(options_.run_days);
  const auto known = Known(id);
  if (stopping_ || !known.ok() || done_.contains(id)) return;
  const std::optional<v1::Job>& job = *known;
  // That of a job has another place, and this one is somebody's.
  if (job && job->run_folder() != run) return;
  const bool ended = !job || IsOver(*job);
  const bool old =
      options_.run_days > 0 && ended && (!job || job->status().changed_unix_ns() < runs_before);
  if (!old && (!job || options_.log_days <= 0 || job->status().attempt() < 2)) return;
  if (!IsOurs(run, id)) return;
  if (!old) return FindLogs(*job, now_unix_ns - DaysNs(options_.log_days), victims);
  if (!job) {
    const auto silent = SilentSince(run);
    if (!silent || *silent >= runs_before) return;
  }
  if (const auto part = PartOf(run, id)) victims[run] = *part;
}

void Retention::MeasureOn() {
  if (!std::exchange(measuring_.begun, true)) measuring_.left = Runs();
  for (; !measuring_.left.empty(); measuring_.left.pop_back()) {
    if (stopping_ || measured_ >= options_.most_files) return;
    Measure(measuring_.left.back());
  }
  sized_ = std::move(measuring_.sized);
  measuring_ = {};
  std::sort(sized_.begin(), sized_.end(), [](const Sized& a, const Sized& b) {
    return std::pair(a.since_unix_ns, a.id) < std::pair(b.since_unix_ns, b.id);
  });
}

std::optional<bool> Retention::IsStill(const Sized& one) {
  const std::string run = RunOf(one.id);
  const auto known = Known(one.id);
  if (!known.ok()) return std::nullopt;
  const std::optional<v1::Job>& job = *known;
  return job && job->run_folder() == run && IsOver(*job) && IsOurs(run, one.id) &&
         PartOf(run, one.id) == one.part;
}

Retention::Victims Retention::FindTooMuch(const Victims& by_age) {
  // What goes by its age takes no room of the others.
  const auto counts = [&](const Sized& one) { return !by_age.contains(RunOf(one.id)); };
  uint64_t all = 0;
  for (const Sized& one : sized_) all += counts(one) ? one.bytes : 0;
  Victims victims;
  std::set<uint64_t> no_more;
  for (const Sized& one : sized_) {
    if (all <= options_.run_bytes || victims.size() >= options_.most_folders) break;
    if (one.bytes == 0 || !counts(one)) continue;
    const std::optional<bool> still = IsStill(one);
    if (!still) break;
    if (*still) victims[RunOf(one.id)] = one.part;
    if (!*still) no_more.insert(one.id);
    all -= one.bytes;
  }
  std::erase_if(sized_, [&](const Sized& one) { return no_more.contains(one.id); });
  return victims;
}

void Retention::Measure(uint64_t id) {
  const std::string run = RunOf(id);
  const auto known = Known(id);
  ++measured_;
  if (stopping_ || !known.ok() || done_.contains(id)) return;
  // One that is not known may go on, as after a backup was put back: it goes by its age alone.
  const std::optional<v1::Job>& job = *known;
  if (!job || job->run_folder() != run || !IsOver(*job) || !IsOurs(run, id)) return;
  const auto part = PartOf(run, id);
  const int folder = part ? open(run.c_str(), kFolderFlags) : -1;
  if (folder < 0) return;
  const size_t before = measured_;
  const uint64_t bytes =
      BytesIn(folder, *part == Part::kRun ? std::set<std::string>() : WithCheckpoints(), 0);
  close(folder);
  // One that is larger than any look counts as what was seen of it.
  if (measured_ - before > options_.most_files) {
    spdlog::warn("{} has more than {} files; the rest is not measured", run, options_.most_files);
  }
  measuring_.sized.push_back({job->status().changed_unix_ns(), id, *part, bytes});
}

uint64_t Retention::BytesIn(int folder, const std::set<std::string>& kept, int depth) {
  const int own = openat(folder, ".", kFolderFlags);
  DIR* entries = own < 0 ? nullptr : fdopendir(own);
  if (entries == nullptr) {
    if (own >= 0) close(own);
    return 0;
  }
  uint64_t bytes = 0;
  const size_t most = 2 * options_.most_files;  // this folder's, and those of before
  for (const dirent* one = readdir(entries); one != nullptr; one = readdir(entries)) {
    const std::string name = one->d_name;
    if (name == "." || name == ".." || kept.contains(name)) continue;
    struct stat about {};
    if (stopping_ || ++measured_ > most) break;
    if (fstatat(folder, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const bool is_folder = S_ISDIR(about.st_mode);
    // Each name of a file is the same bytes.
    if (!is_folder && about.st_nlink > 1 &&
        !measuring_.linked.emplace(about.st_dev, about.st_ino).second) {
      continue;
    }
    bytes += static_cast<uint64_t>(about.st_blocks) * 512;
    if (!is_folder || depth >= kDeepest) continue;
    const int inner = openat(folder, name.c_str(), kFolderFlags);
    if (inner < 0) continue;
    bytes += BytesIn(inner, {}, depth + 1);
    close(inner);
  }
  closedir(entries);
  return bytes;
}

void Retention::FindLogs(const v1::Job& job, int64_t before_unix_ns, Victims& victims) const {
  for (const std::string& name : NamesIn(job.run_folder() + "/attempts")) {
    const auto number = NumberOf(name);
    if (!number || *number >= job.status().attempt()) continue;
    const std::string attempt = job.run_folder() + "/attempts/" + name;
    const int64_t newest = std::max(NewestIn(attempt + "/logs"), NewestIn(attempt + "/recorder"));
    if (newest != 0 && newest < before_unix_ns) victims[attempt] = Part::kLogs;
  }
}

void Retention::Announce(const Victims& victims, const char* option) {
  std::map<Part, std::vector<std::string>> by_part;
  for (const auto& [path, part] : victims) by_part[part].push_back(path);
  const std::map<Part, std::string> words{
      {Part::kRun, fmt::format("run folders with all that is in them ({})", option)},
      {Part::kRunButCheckpoints, fmt::format("run folders but for their checkpoints ({})", option)},
      {Part::kLogs, "logs and recorders of attempts (--keep-attempt-logs)"}};
  for (const auto& [part, paths] : by_part) {
    spdlog::info("at the next look these {} {} will be removed: {}", paths.size(), words.at(part),
                 fmt::join(paths, " "));
  }
}

bool Retention::Remove(const std::string& path, Part part, const char* why) {
  const int folder = open(path.c_str(), kFolderFlags);
  if (folder < 0) return false;
  bool gone = false;
  if (part == Part::kLogs) {
    gone = RemoveTree(folder, "logs");
    gone = RemoveTree(folder, "recorder") && gone;
  } else {
    gone = RemoveEntries(folder, part == Part::kRun ? Last() : WithCheckpoints());
    if (gone && part == Part::kRun) {
      gone = unlinkat(folder, "run.json", 0) == 0 && rmdir(path.c_str()) == 0;
    }
  }
  close(folder);
  if (gone) {
    spdlog::info("removed {}: {}{}", why, path, part == Part::kLogs ? "/logs, recorder" : "");
  } else if (files_left_ > 0 && !stopping_) {
    spdlog::warn("not all of {} could be removed; it is tried again", path);
  }
  return gone;
}

bool Retention::RemoveEntries(int folder, const std::set<std::string>& kept, int depth) {
  // closedir closes its own.
  const int own = openat(folder, ".", kFolderFlags);
  DIR* entries = own < 0 ? nullptr : fdopendir(own);
  if (entries == nullptr) {
    if (own >= 0) close(own);
    return false;
  }
  std::vector<std::string> names;
  for (const dirent* one = readdir(entries); one != nullptr && names.size() < files_left_ + 1;
       one = readdir(entries)) {
    const std::string name = one->d_name;
    if (name != "." && name != ".." && !kept.contains(name)) names.push_back(name);
  }
  closedir(entries);
  bool all = true;
  for (const std::string& name : names) all = RemoveTree(folder, name, depth + 1) && all;
  return all;
}

bool Retention::RemoveTree(int folder, const std::string& name, int depth) {
  if (stopping_ || files_left_ == 0 || depth > kDeepest) return false;
  --files_left_;
  if (unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return true;
  if (errno != EISDIR && errno != EPERM) return false;
  const int inner = openat(folder, name.c_str(), kFolderFlags);
  if (inner < 0) return false;
  const bool empty = RemoveEntries(inner, {}, depth);
  close(inner);
  return empty && unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0;
}

}  // namespace trireme::coordinator
