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
#include <tuple>
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

// Of an attempt. 0: there are none.
int64_t NewestLog(const std::string& attempt) {
  return std::max(NewestIn(attempt + "/logs"), NewestIn(attempt + "/recorder"));
}

// Calls visit(number, folder, time of the newest log) for the attempts that later ones of their job
// have followed, where there are logs.
template <typename Visit>
void ForEachFollowed(const v1::Job& job, const Visit& visit) {
  for (const std::string& name : NamesIn(job.run_folder() + "/attempts")) {
    const auto number = NumberOf(name);
    if (!number || *number >= job.status().attempt()) continue;
    const std::string attempt = job.run_folder() + "/attempts/" + name;
    if (const int64_t newest = NewestLog(attempt); newest != 0) visit(*number, attempt, newest);
  }
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
    : options_(std::move(options)),
      find_(std::move(find)),
      runs_{.most_bytes = options_.run_bytes,
            .option = "--keep-run-bytes",
            .why = "for the room that run folders take"},
      logs_{.most_bytes = options_.log_bytes,
            .option = "--keep-attempt-log-bytes",
            .why = "for the room that logs of attempts take"} {}

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
    TakeOff(path);
  }
}

void Retention::TakeOff(const std::string& path) {
  const auto gone = [&](const Sized& one) { return PathOf(one) == path || RunOf(one.id) == path; };
  for (Bound* bound : {&runs_, &logs_}) {
    std::erase_if(bound->sized, gone);
    std::erase_if(bound->measured, gone);
  }
}

int64_t Retention::Look(int64_t now_unix_ns) {
  files_left_ = options_.most_files;
  measured_ = 0;
  Victims victims = FindOld(now_unix_ns);
  if (runs_.most_bytes > 0 || logs_.most_bytes > 0) MeasureOn();
  Victims too_much = victims;
  std::vector<Victims> of_bounds;
  for (Bound* bound : {&runs_, &logs_}) {
    of_bounds.push_back(FindTooMuch(*bound, too_much));
    too_much.insert(of_bounds.back().begin(), of_bounds.back().end());
  }
  RemoveOf(announced_, victims, "by its age");
  Announce(victims, "--keep-run-folders", "--keep-attempt-logs");
  announced_ = std::move(victims);
  Victims goes = announced_;
  size_t at = 0;
  for (Bound* bound : {&runs_, &logs_}) {
    RemoveOf(bound->announced, of_bounds[at++], bound->why);
    bound->announced = FindTooMuch(*bound, goes);
    Announce(bound->announced, bound->option, bound->option);
    goes.insert(bound->announced.begin(), bound->announced.end());
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

std::string Retention::PathOf(const Sized& one) const {
  if (one.part != Part::kLogs) return RunOf(one.id);
  return fmt::format("{}/attempts/{}", RunOf(one.id), one.attempt);
}

int Retention::OpenBelow(const std::string& path) const {
  int folder = open(options_.jobs_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (size_t begin = options_.jobs_folder.size() + 1; folder >= 0 && begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const int inner = openat(folder, path.substr(begin, end - begin).c_str(), kFolderFlags);
    close(folder);
    folder = inner;
    begin = end + 1;
  }
  return folder;
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
  if (!unmeasured_) unmeasured_ = Runs();
  for (; !unmeasured_->empty(); unmeasured_->pop_back()) {
    if (stopping_ || measured_ >= options_.most_files) return;
    Measure(unmeasured_->back());
  }
  unmeasured_.reset();
  for (Bound* bound : {&runs_, &logs_}) {
    bound->sized = std::exchange(bound->measured, {});
    bound->linked.clear();
    std::sort(bound->sized.begin(), bound->sized.end(), [](const Sized& a, const Sized& b) {
      return std::tuple(a.since_unix_ns, a.id, a.attempt) <
             std::tuple(b.since_unix_ns, b.id, b.attempt);
    });
  }
}

std::optional<bool> Retention::IsStill(const Sized& one) {
  const std::string run = RunOf(one.id);
  const auto known = Known(one.id);
  if (!known.ok()) return std::nullopt;
  const std::optional<v1::Job>& job = *known;
  if (!job || job->run_folder() != run || !IsOurs(run, one.id)) return false;
  if (one.part != Part::kLogs) return IsOver(*job) && PartOf(run, one.id) == one.part;
  return one.attempt < job->status().attempt() && NewestLog(PathOf(one)) != 0;
}

Retention::Victims Retention::FindTooMuch(Bound& bound, const Victims& goes) {
  Victims victims;
  if (bound.most_bytes == 0) return victims;
  const auto counts = [&](const Sized& one) {
    return !goes.contains(RunOf(one.id)) && !goes.contains(PathOf(one));
  };
  uint64_t all = 0;
  for (const Sized& one : bound.sized) all += counts(one) ? one.bytes : 0;
  std::set<std::string> no_more;
  for (const Sized& one : bound.sized) {
    if (all <= bound.most_bytes || victims.size() >= options_.most_folders) break;
    if (one.bytes == 0 || !counts(one)) continue;
    const std::optional<bool> still = IsStill(one);
    if (!still) break;
    if (*still) victims[PathOf(one)] = one.part;
    if (!*still) no_more.insert(PathOf(one));
    all -= one.bytes;
  }
  std::erase_if(bound.sized, [&](const Sized& one) { return no_more.contains(PathOf(one)); });
  return victims;
}

void Retention::Measure(uint64_t id) {
  const std::string run = RunOf(id);
  const auto known = Known(id);
  ++measured_;
  if (stopping_ || !known.ok() || done_.contains(id)) return;
  // One that is not known may go on, as after a backup was put back: it goes by its age alone.
  const std::optional<v1::Job>& job = *known;
  if (!job || job->run_folder() != run) return;
  const bool whole = runs_.most_bytes > 0 && IsOver(*job);
  const bool logs = logs_.most_bytes > 0 && job->status().attempt() > 1;
  if ((!whole && !logs) || !IsOurs(run, id)) return;
  if (whole) MeasureRun(*job);
  if (logs) MeasureLogs(*job);
}

void Retention::MeasureRun(const v1::Job& job) {
  const auto part = PartOf(job.run_folder(), job.id());
  if (!part) return;
  const uint64_t bytes = BytesBelow(
      runs_, job.run_folder(), *part == Part::kRun ? std::set<std::string>() : WithCheckpoints());
  runs_.measured.push_back({job.status().changed_unix_ns(), job.id(), 0, *part, bytes});
}

void Retention::MeasureLogs(const v1::Job& job) {
  ForEachFollowed(job, [&](uint64_t number, const std::string& attempt, int64_t newest_unix_ns) {
    ++measured_;
    const uint64_t bytes =
        BytesBelow(logs_, attempt + "/logs", {}) + BytesBelow(logs_, attempt + "/recorder", {});
    logs_.measured.push_back({newest_unix_ns, job.id(), number, Part::kLogs, bytes});
  });
}

uint64_t Retention::BytesBelow(Bound& bound, const std::string& path,
                               const std::set<std::string>& kept) {
  const int folder = OpenBelow(path);
  if (folder < 0) return 0;
  const size_t before = measured_;
  const uint64_t bytes = BytesIn(bound, folder, kept, 0);
  close(folder);
  // One that is larger than any look counts as what was seen of it.
  if (measured_ - before > options_.most_files) {
    spdlog::warn("{} has more than {} files; the rest is not measured", path, options_.most_files);
  }
  return bytes;
}

uint64_t Retention::BytesIn(Bound& bound, int folder, const std::set<std::string>& kept,
                            int depth) {
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
        !bound.linked.emplace(about.st_dev, about.st_ino).second) {
      continue;
    }
    bytes += static_cast<uint64_t>(about.st_blocks) * 512;
    if (!is_folder || depth >= kDeepest) continue;
    const int inner = openat(folder, name.c_str(), kFolderFlags);
    if (inner < 0) continue;
    bytes += BytesIn(bound, inner, {}, depth + 1);
    close(inner);
  }
  closedir(entries);
  return bytes;
}

void Retention::FindLogs(const v1::Job& job, int64_t before_unix_ns, Victims& victims) const {
  ForEachFollowed(job, [&](uint64_t, const std::string& attempt, int64_t newest_unix_ns) {
    if (newest_unix_ns < before_unix_ns) victims[attempt] = Part::kLogs;
  });
}

void Retention::Announce(const Victims& victims, const char* option, const char* log_option) {
  std::map<Part, std::vector<std::string>> by_part;
  for (const auto& [path, part] : victims) by_part[part].push_back(path);
  const std::map<Part, std::string> words{
      {Part::kRun, fmt::format("run folders with all that is in them ({})", option)},
      {Part::kRunButCheckpoints, fmt::format("run folders but for their checkpoints ({})", option)},
      {Part::kLogs, fmt::format("logs and recorders of attempts ({})", log_option)}};
  for (const auto& [part, paths] : by_part) {
    spdlog::info("at the next look these {} {} will be removed: {}", paths.size(), words.at(part),
                 fmt::join(paths, " "));
  }
}

bool Retention::Remove(const std::string& path, Part part, const char* why) {
  const int folder = OpenBelow(path);
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
