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
constexpr size_t kPlacesForOneRetry = 10;   // of a look's folders; of what failed a day ago
constexpr size_t kLooksOfStuck = 100;       // whose folders are remembered: of some days
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

// The same of one that a later one of its job has followed, which was before that job last changed:
// the files' times are the ranks' to set.
int64_t NewestLogOf(const v1::Job& job, const std::string& attempt) {
  const int64_t newest = NewestLog(attempt);
  const int64_t changed = job.status().changed_unix_ns();
  return changed == 0 ? newest : std::min(newest, changed);
}

// In ascending order.
std::vector<uint64_t> AttemptsIn(const std::string& run) {
  std::vector<uint64_t> numbers;
  for (const std::string& name : NamesIn(run + "/attempts")) {
    if (const auto number = NumberOf(name)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
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
      stuck_(kLooksOfStuck * options_.most_folders),
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

void Retention::RemoveOf(const Victims& announced, Victims& victims, const char* why,
                         int64_t now_unix_ns) {
  for (const auto& [path, part] : announced) {
    const auto still = victims.find(path);
    if (stopping_ || files_left_ == 0) break;
    if (still == victims.end() || still->second != part) continue;
    Removal removal({.most_files = files_left_,
                     .most_failed = options_.most_failed,
                     .unlink = options_.unlink,
                     .stopping = &stopping_});
    const bool gone = Remove(removal, path, part);
    files_left_ -= std::min(files_left_, removal.spent());
    if (!gone && (removal.IsCut() || removal.failure().empty())) continue;
    if (gone) {
      spdlog::info("removed {}: {}{}", why, path, part == Part::kLogs ? "/logs, recorder" : "");
    } else {
      stuck_.Add(path, now_unix_ns);
      spdlog::warn("not all of {} could be removed, which is tried again in a day: {}", path,
                   removal.failure());
    }
    victims.erase(still);
    // What is left of it takes room when it is measured again: nobody knows how much until then.
    TakeOff(path);
  }
}

void Retention::TakeOff(const std::string& path) {
  const auto take = [&](std::vector<Sized>& runs, std::vector<Sized>& logs) {
    for (const Sized& log : logs) {
      if (PathOf(log) != path) continue;
      for (Sized& run : runs) {
        if (run.id == log.id) run.bytes -= std::min(run.bytes, log.bytes);
      }
    }
    for (std::vector<Sized>* of : {&runs, &logs}) {
      std::erase_if(*of,
                    [&](const Sized& one) { return PathOf(one) == path || RunOf(one.id) == path; });
    }
  };
  take(runs_.sized, logs_.sized);
  take(runs_.measured, logs_.measured);
}

int64_t Retention::Look(int64_t now_unix_ns) {
  files_left_ = options_.most_files;
  measured_ = 0;
  stuck_.Forget(std::max<size_t>(1, options_.most_folders / kPlacesForOneRetry), now_unix_ns);
  old_log_unix_ns_ = options_.log_days > 0 ? now_unix_ns - DaysNs(options_.log_days) : 0;
  Victims victims = FindOld(now_unix_ns);
  if (runs_.most_bytes > 0 || logs_.most_bytes > 0) MeasureOn();
  Victims too_much = victims;
  std::vector<Victims> of_bounds;
  // Logs first: their room is not that of run folders any more.
  const std::vector<Bound*> bounds = {&logs_, &runs_};
  for (Bound* bound : bounds) {
    of_bounds.push_back(FindTooMuch(*bound, too_much));
    too_much.insert(of_bounds.back().begin(), of_bounds.back().end());
  }
  RemoveOf(announced_, victims, "by its age", now_unix_ns);
  Announce(victims, "--keep-run-folders", "--keep-attempt-logs");
  announced_ = std::move(victims);
  Victims goes = announced_;
  size_t at = 0;
  for (Bound* bound : bounds) {
    RemoveOf(bound->announced, of_bounds[at++], bound->why, now_unix_ns);
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
    const int error = errno;
    close(folder);
    errno = error;
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
  if (stuck_.Contains(run)) return;
  if (!job) {
    const auto silent = SilentSince(run);
    if (!silent || *silent >= runs_before) return;
  }
  if (const auto part = PartOf(run, id)) victims[run] = *part;
}

void Retention::MeasureOn() {
  if (!unmeasured_) unmeasured_ = Runs();
  for (; !unmeasured_->empty(); unmeasured_->pop_back(), next_attempt_ = 0) {
    if (stopping_ || measured_ >= options_.most_files) return;
    if (!Measure(unmeasured_->back())) return;
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

std::map<uint64_t, uint64_t> Retention::LogsThatGo(const Victims& goes) const {
  std::map<uint64_t, uint64_t> bytes;
  for (const Sized& log : logs_.sized) {
    const std::string path = PathOf(log);
    const bool by_age = log.since_unix_ns < old_log_unix_ns_ && !stuck_.Contains(path);
    if (by_age || goes.contains(path) || logs_.later.contains(path)) {
      bytes[log.id] += log.bytes;
    }
  }
  return bytes;
}

Retention::Victims Retention::FindTooMuch(Bound& bound, const Victims& goes) {
  Victims victims;
  bound.later.clear();
  if (bound.most_bytes == 0) return victims;
  const std::map<uint64_t, uint64_t> logs_that_go = LogsThatGo(goes);
  const auto bytes_of = [&](const Sized& one) -> uint64_t {
    if (goes.contains(RunOf(one.id)) || goes.contains(PathOf(one))) return 0;
    const auto logs = logs_that_go.find(one.id);
    if (one.part == Part::kLogs || logs == logs_that_go.end()) return one.bytes;
    return one.bytes - std::min(one.bytes, logs->second);
  };
  uint64_t all = 0;
  for (const Sized& one : bound.sized) all += bytes_of(one);
  std::set<std::string> no_more;
  bool can_ask = true;
  for (const Sized& one : bound.sized) {
    if (all <= bound.most_bytes) break;
    const uint64_t bytes = bytes_of(one);
    // What is stuck makes no room: others have to.
    if (bytes == 0 || stuck_.Contains(PathOf(one))) continue;
    all -= bytes;
    std::optional<bool> still;
    if (can_ask && victims.size() < options_.most_folders) {
      still = IsStill(one);
      can_ask = still.has_value();
    }
    if (!still) bound.later.insert(PathOf(one));
    if (still && *still) victims[PathOf(one)] = one.part;
    if (still && !*still) no_more.insert(PathOf(one));
  }
  std::erase_if(bound.sized, [&](const Sized& one) { return no_more.contains(PathOf(one)); });
  return victims;
}

bool Retention::Measure(uint64_t id) {
  const std::string run = RunOf(id);
  const auto known = Known(id);
  ++measured_;
  if (stopping_ || !known.ok() || done_.contains(id)) return true;
  // One that is not known may go on, as after a backup was put back: it goes by its age alone.
  const std::optional<v1::Job>& job = *known;
  if (!job || job->run_folder() != run) return true;
  const bool whole = runs_.most_bytes > 0 && IsOver(*job);
  // Those that go by their age are no room of their run folder either.
  const bool logs = logs_.most_bytes > 0 || (whole && options_.log_days > 0);
  if ((!whole && (!logs || job->status().attempt() < 2)) || !IsOurs(run, id)) return true;
  if (whole && next_attempt_ == 0) MeasureRun(*job);
  for (const uint64_t number : AttemptsIn(run)) {
    if (number < next_attempt_) continue;
    const bool followed = logs && number < job->status().attempt();
    const int64_t since =
        followed ? NewestLogOf(*job, fmt::format("{}/attempts/{}", run, number)) : 0;
    if (!whole && since == 0) continue;
    // The first of a look is measured in any case.
    if (stopping_ || (measured_ >= options_.most_files && number != next_attempt_)) {
      next_attempt_ = number;
      return false;
    }
    MeasureAttempt(*job, number, whole, since);
  }
  return true;
}

void Retention::MeasureRun(const v1::Job& job) {
  const auto part = PartOf(job.run_folder(), job.id());
  if (!part) return;
  std::set<std::string> kept = *part == Part::kRun ? std::set<std::string>() : WithCheckpoints();
  kept.insert("attempts");
  std::set<std::string> attempts;
  for (const uint64_t number : AttemptsIn(job.run_folder())) {
    attempts.insert(std::to_string(number));
  }
  const uint64_t bytes = BytesBelow(runs_, job.run_folder(), kept) +
                         BytesBelow(runs_, job.run_folder() + "/attempts", attempts);
  runs_.measured.push_back({job.status().changed_unix_ns(), job.id(), 0, *part, bytes});
  WarnIfCut(job.run_folder());
}

void Retention::MeasureAttempt(const v1::Job& job, uint64_t number, bool whole,
                               int64_t logs_since_unix_ns) {
  const std::string attempt = fmt::format("{}/attempts/{}", job.run_folder(), number);
  ++measured_;
  // A job that had not ended when the others of its attempts were measured has no size this time.
  if (whole && !runs_.measured.empty() && runs_.measured.back().id == job.id()) {
    runs_.measured.back().bytes += BytesBelow(runs_, attempt, {});
  }
  if (logs_since_unix_ns != 0) {
    const uint64_t bytes =
        BytesBelow(logs_, attempt + "/logs", {}) + BytesBelow(logs_, attempt + "/recorder", {});
    logs_.measured.push_back({logs_since_unix_ns, job.id(), number, Part::kLogs, bytes});
  }
  WarnIfCut(attempt);
}

void Retention::WarnIfCut(const std::string& path) {
  if (!std::exchange(cut_, false)) return;
  spdlog::warn("{} has more than {} files; the rest is not measured", path, options_.most_files);
}

uint64_t Retention::BytesBelow(Bound& bound, const std::string& path,
                               const std::set<std::string>& kept) {
  const int folder = OpenBelow(path);
  if (folder < 0) return 0;
  most_measured_ = measured_ + options_.most_files;
  const uint64_t bytes = BytesIn(bound, folder, kept, 0);
  close(folder);
  // One that is larger than any look counts as what was seen of it.
  cut_ = cut_ || measured_ > most_measured_;
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
  for (const dirent* one = readdir(entries); one != nullptr; one = readdir(entries)) {
    const std::string name = one->d_name;
    if (name == "." || name == ".." || kept.contains(name)) continue;
    struct stat about {};
    if (stopping_ || ++measured_ > most_measured_) break;
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
  for (const uint64_t number : AttemptsIn(job.run_folder())) {
    if (number >= job.status().attempt()) break;
    const std::string attempt = fmt::format("{}/attempts/{}", job.run_folder(), number);
    const int64_t newest = NewestLogOf(job, attempt);
    if (newest == 0 || newest >= before_unix_ns || stuck_.Contains(attempt)) continue;
    victims[attempt] = Part::kLogs;
  }
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

bool Retention::Remove(Removal& removal, const std::string& path, Part part) const {
  const Removal::Folder folder{.descriptor = OpenBelow(path), .path = path};
  if (folder.descriptor < 0) {
    if (errno != ENOENT) removal.Fail(path, errno);
    return false;
  }
  bool gone = false;
  if (part == Part::kLogs) {
    gone = removal.RemoveTree(folder, "logs");
    gone = removal.RemoveTree(folder, "recorder") && gone;
  } else {
    gone = removal.RemoveEntries(folder, part == Part::kRun ? Last() : WithCheckpoints());
    if (gone && part == Part::kRun) {
      const Removal::Folder jobs{.descriptor = OpenBelow(""), .path = options_.jobs_folder};
      if (jobs.descriptor < 0) removal.Fail(jobs.path, errno);
      gone = jobs.descriptor >= 0 && removal.RemoveOne(folder, "run.json", 0) &&
             removal.RemoveOne(jobs, path.substr(jobs.path.size() + 1), AT_REMOVEDIR);
      if (jobs.descriptor >= 0) close(jobs.descriptor);
    }
  }
  close(folder.descriptor);
  return gone;
}

}  // namespace trireme::coordinator
