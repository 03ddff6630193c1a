// Each call is passed on first and noted if it worked, under one mutex, so that the log is an order
// in which the system has done it. Descriptors are known by the open that gave them.
#include "tests/power_loss/disk_log.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/base/check.h"

namespace trireme::power_loss {
namespace {

using Kind = Call::Kind;

std::atomic<bool> recording = false;
std::atomic<int> calls_left = 0;  // until this process stands still; 0: it does not
std::string kept_name;            // by RefuseNames
int names_too_many = 0;           // by FillDisk

// The same tree as on the disk, by numbers.
struct Log {
  std::mutex mutex;
  std::string root;
  std::vector<Call> calls;
  std::map<std::string, int> by_path;  // "" is the root
  std::map<int, int> by_descriptor;    // to numbers
  std::map<int, std::string> folders;  // by descriptor: the path of an opened folder
  std::map<int, uint64_t> at;          // by descriptor: where write() goes on
  int made = 0;
};

Log& TheLog() {
  static Log* const log = new Log;  // outlives the libraries that call us at their end
  return *log;
}

// Relative to the root; nothing for what lies elsewhere.
std::optional<std::string> Below(const Log& log, int folder, const char* path) {
  std::string whole = path;
  if (whole.empty() || whole[0] != '/') {
    if (folder == AT_FDCWD) return std::nullopt;
    const auto known = log.folders.find(folder);
    if (known == log.folders.end()) return std::nullopt;
    whole = log.root + "/" + (known->second.empty() ? "" : known->second + "/") + whole;
  }
  whole = std::filesystem::path(whole).lexically_normal().string();
  while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
  if (whole == log.root) return "";
  if (whole.rfind(log.root + "/", 0) != 0) return std::nullopt;
  return whole.substr(log.root.size() + 1);
}

std::optional<int> NumberOf(const Log& log, const std::string& path) {
  const auto found = log.by_path.find(path);
  return found == log.by_path.end() ? std::nullopt : std::optional(found->second);
}

void Note(Log& log, Call call) { log.calls.push_back(std::move(call)); }

void NoteMade(Log& log, Kind kind, const std::string& path) {
  log.by_path[path] = ++log.made;
  Note(log, {.kind = kind, .file = log.made, .path = path});
}

// With all that lies below them.
void MoveNames(Log& log, const std::string& from, const std::string& to, bool exchange) {
  std::map<std::string, int> moved;
  const auto take = [&](const std::string& source, const std::string& target, bool keep) {
    for (auto each = log.by_path.begin(); each != log.by_path.end();) {
      const bool inside = each->first == source || each->first.rfind(source + "/", 0) == 0;
      if (inside && keep) moved[target + each->first.substr(source.size())] = each->second;
      each = inside ? log.by_path.erase(each) : std::next(each);
    }
  };
  take(from, to, true);
  take(to, from, exchange);
  log.by_path.merge(moved);
}

void StandIfDue() {
  if (calls_left > 0 && --calls_left == 0) raise(SIGSTOP);
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int NoteOpen(int fd, int folder, const char* path, int flags, bool was_there) {
  if (fd < 0 || !recording) return fd;
  const int error = errno;
  Log& log = TheLog();
  const std::lock_guard lock(log.mutex);
  log.by_descriptor.erase(fd);
  log.folders.erase(fd);
  log.at[fd] = 0;
  if (const auto below = Below(log, folder, path)) {
    struct stat about {};
    fstat(fd, &about);
    if (S_ISDIR(about.st_mode)) {
      log.folders[fd] = *below;
    } else if (!was_there) {
      NoteMade(log, Kind::kMakeFile, *below);
    } else if ((flags & O_TRUNC) != 0) {
      Note(log, {.kind = Kind::kTruncate, .file = NumberOf(log, *below).value_or(-1)});
    }
    if (const auto number = NumberOf(log, *below)) log.by_descriptor[fd] = *number;
  }
  errno = error;
  return fd;
}

bool Exists(int folder, const char* path) {
  struct stat about {};
  const int error = errno;
  const bool there = fstatat(folder, path, &about, AT_SYMLINK_NOFOLLOW) == 0;
  errno = error;
  return there;
}

int OpenAndNote(const char* symbol, int folder, const char* path, int flags, mode_t mode) {
  StandIfDue();
  const auto next = Next<int (*)(int, const char*, int, ...)>(symbol);
  const bool was_there = !recording || Exists(folder, path);
  return NoteOpen(next(folder, path, flags, mode), folder, path, flags, was_there);
}

// The numbered file behind a descriptor, while the log is held.
std::optional<int> Behind(const Log& log, int fd) {
  const auto found = log.by_descriptor.find(fd);
  return found == log.by_descriptor.end() ? std::nullopt : std::optional(found->second);
}

void NoteWrite(int fd, const void* bytes, ssize_t count, std::optional<uint64_t> offset) {
  if (count < 0 || !recording) return;
  Log& log = TheLog();
  const std::lock_guard lock(log.mutex);
  const auto file = Behind(log, fd);
  if (!file) return;
  const uint64_t at = offset.value_or(log.at[fd]);
  if (!offset) log.at[fd] += static_cast<uint64_t>(count);
  Note(log, {.kind = Kind::kWrite,
             .file = *file,
             .offset = at,
             .bytes = std::string(static_cast<const char*>(bytes), static_cast<size_t>(count))});
}

int NoteTruncate(int result, int fd, uint64_t bytes) {
  if (result != 0 || !recording) return result;
  Log& log = TheLog();
  const std::lock_guard lock(log.mutex);
  const auto file = Behind(log, fd);
  if (file) Note(log, {.kind = Kind::kTruncate, .file = *file, .offset = bytes});
  return result;
}

int NoteSync(int result, int fd) {
  if (result != 0 || !recording) return result;
  Log& log = TheLog();
  const std::lock_guard lock(log.mutex);
  const auto file = Behind(log, fd);
  if (!file) return result;
  const auto folder = log.folders.find(fd);
  const bool is_folder = folder != log.folders.end();
  Note(log, {.kind = is_folder ? Kind::kSyncFolder : Kind::kSyncFile, .file = *file});
  for (const auto& [path, number] : log.by_path) {
    if (number == *file) log.calls.back().path = path;
  }
  return result;
}

int NoteRename(int result, int from_folder, const char* from, int to_folder, const char* to,
               unsigned flags) {
  if (result != 0 || !recording) return result;
  Log& log = TheLog();
  const std::lock_guard lock(log.mutex);
  const auto source = Below(log, from_folder, from), target = Below(log, to_folder, to);
  if (!source && !target) return result;
  TRIREME_CHECK(source && target);
  const bool exchange = (flags & RENAME_EXCHANGE) != 0;
  Note(log,
       {.kind = exchange ? Kind::kExchange : Kind::kRename, .path = *source, .other = *target});
  MoveNames(log, *source, *target, exchange);
  return result;
}

int NoteLink(int result, int from_folder, const char* from, int to_folder, const char* to) {
  if (result != 0 || !recording) return result;
  Log& log = TheLog();
  const std::lock_guard lock(log.mutex);
  const auto source = Below(log, from_folder, from), target = Below(log, to_folder, to);
  if (!source || !target) return result;
  Note(log, {.kind = Kind::kLink, .path = *source, .other = *target});
  log.by_path[*target] = log.by_path.at(*source);
  return result;
}

int NoteRemove(int result, int folder, const char* path) {
  if (result == 0 && names_too_many > 0) --names_too_many;
  if (result != 0 || !recording) return result;
  Log& log = TheLog();
  const std::lock_guard lock(log.mutex);
  const auto below = Below(log, folder, path);
  if (!below) return result;
  Note(log, {.kind = Kind::kRemove, .path = *below});
  log.by_path.erase(*below);
  return result;
}

int NoteFolder(int result, int folder, const char* path) {
  if (result != 0 || !recording) return result;
  Log& log = TheLog();
  const std::lock_guard lock(log.mutex);
  if (const auto below = Below(log, folder, path)) NoteMade(log, Kind::kMakeFolder, *below);
  return result;
}

mode_t ModeIn(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

std::vector<Call> Record(const std::string& root, const std::function<void()>& work) {
  Log& log = TheLog();
  {
    const std::lock_guard lock(log.mutex);
    log.root = root;
    log.calls.clear();
    log.by_path = {{"", 0}};
    log.by_descriptor.clear();
    log.folders.clear();
    log.made = 0;
  }
  recording = true;
  work();
  recording = false;
  const std::lock_guard lock(log.mutex);
  return log.calls;
}

void Mark(const std::string& note) {
  Log& log = TheLog();
  const std::lock_guard lock(log.mutex);
  Note(log, {.kind = Kind::kMark, .path = note});
}

void StandStillBefore(int calls) { calls_left = calls; }

void RefuseNames(const std::string& ending) { kept_name = ending; }

void FillDisk(int names) { names_too_many = names; }

static bool IsFull(int folder, const char* path) {
  if (names_too_many == 0 || Exists(folder, path)) return false;
  errno = ENOSPC;
  return true;
}

static bool IsKept(const std::string& path) {
  if (kept_name.empty() || !path.ends_with(kept_name)) return false;
  errno = EACCES;
  return true;
}

// The calls themselves; extern "C", a namespace changes nothing of their names. Those that know
// large files have two.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeIn(flags, arguments);
  va_end(arguments);
  return OpenAndNote("openat", AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeIn(flags, arguments);
  va_end(arguments);
  return OpenAndNote("openat64", AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeIn(flags, arguments);
  va_end(arguments);
  return OpenAndNote("openat", folder, path, flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeIn(flags, arguments);
  va_end(arguments);
  return OpenAndNote("openat64", folder, path, flags, mode);
}

int mkostemp(char* name, int flags) {
  static const auto next = Next<int (*)(char*, int)>("mkostemp");
  const int fd = next(name, flags);
  return NoteOpen(fd, AT_FDCWD, name, flags, false);
}

int mkostemp64(char* name, int flags) {
  static const auto next = Next<int (*)(char*, int)>("mkostemp64");
  const int fd = next(name, flags);
  return NoteOpen(fd, AT_FDCWD, name, flags, false);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t)>("write");
  const ssize_t done = next(fd, bytes, count);
  NoteWrite(fd, bytes, done, std::nullopt);
  return done;
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  const ssize_t done = next(fd, bytes, count, offset);
  NoteWrite(fd, bytes, done, static_cast<uint64_t>(offset));
  return done;
}

ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t offset) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  const ssize_t done = next(fd, bytes, count, offset);
  NoteWrite(fd, bytes, done, static_cast<uint64_t>(offset));
  return done;
}

int ftruncate(int fd, off_t bytes) noexcept {
  static const auto next = Next<int (*)(int, off_t)>("ftruncate");
  return NoteTruncate(next(fd, bytes), fd, static_cast<uint64_t>(bytes));
}

int ftruncate64(int fd, off64_t bytes) noexcept {
  static const auto next = Next<int (*)(int, off64_t)>("ftruncate64");
  return NoteTruncate(next(fd, bytes), fd, static_cast<uint64_t>(bytes));
}

int stat(const char* path, struct stat* about) noexcept {
  StandIfDue();
  return fstatat(AT_FDCWD, path, about, 0);
}

int stat64(const char* path, struct stat64* about) noexcept {
  StandIfDue();
  return fstatat64(AT_FDCWD, path, about, 0);
}

int fsync(int fd) {
  StandIfDue();
  static const auto next = Next<int (*)(int)>("fsync");
  return NoteSync(next(fd), fd);
}

int fdatasync(int fd) {
  StandIfDue();
  static const auto next = Next<int (*)(int)>("fdatasync");
  return NoteSync(next(fd), fd);
}

int rename(const char* from, const char* to) noexcept {
  StandIfDue();
  if (IsKept(from)) return -1;
  static const auto next = Next<int (*)(const char*, const char*)>("rename");
  return NoteRename(next(from, to), AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  StandIfDue();
  static const auto next = Next<int (*)(int, const char*, int, const char*)>("renameat");
  return NoteRename(next(from_folder, from, to_folder, to), from_folder, from, to_folder, to, 0);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  StandIfDue();
  static const auto next = Next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  return NoteRename(next(from_folder, from, to_folder, to, flags), from_folder, from, to_folder, to,
                    flags);
}

int link(const char* from, const char* to) noexcept {
  StandIfDue();
  static const auto next = Next<int (*)(const char*, const char*)>("link");
  return NoteLink(next(from, to), AT_FDCWD, from, AT_FDCWD, to);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  StandIfDue();
  static const auto next = Next<int (*)(int, const char*, int, const char*, int)>("linkat");
  return NoteLink(next(from_folder, from, to_folder, to, flags), from_folder, from, to_folder, to);
}

int unlink(const char* path) noexcept {
  StandIfDue();
  static const auto next = Next<int (*)(const char*)>("unlink");
  return NoteRemove(next(path), AT_FDCWD, path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  StandIfDue();
  if (IsKept(path)) return -1;
  static const auto next = Next<int (*)(int, const char*, int)>("unlinkat");
  return NoteRemove(next(folder, path, flags), folder, path);
}

int rmdir(const char* path) noexcept {
  StandIfDue();
  static const auto next = Next<int (*)(const char*)>("rmdir");
  return NoteRemove(next(path), AT_FDCWD, path);
}

int remove(const char* path) noexcept {
  StandIfDue();
  static const auto next = Next<int (*)(const char*)>("remove");
  return NoteRemove(next(path), AT_FDCWD, path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  StandIfDue();
  if (IsFull(AT_FDCWD, path)) return -1;
  static const auto next = Next<int (*)(const char*, mode_t)>("mkdir");
  return NoteFolder(next(path, mode), AT_FDCWD, path);
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  StandIfDue();
  if (IsFull(folder, path)) return -1;
  static const auto next = Next<int (*)(int, const char*, mode_t)>("mkdirat");
  return NoteFolder(next(folder, path, mode), folder, path);
}

}  // extern "C"

}  // namespace trireme::power_loss
