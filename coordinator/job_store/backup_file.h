// The file of a backup: filled under a name of its own, and under its final one whole or not at
// all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/job_store/schema.h"

namespace trireme::coordinator {

// A private file that goes away with this, and what SQLite lays beside it.
class ScratchFile {
 public:
  // Beside `path`, named `path` and some letters. Errors as JobStore::Backup.
  static absl::StatusOr<std::unique_ptr<ScratchFile>> MakeBeside(const std::string& path);
  // `path` itself, in the place of what somebody who was killed has left there.
  static absl::StatusOr<std::unique_ptr<ScratchFile>> MakeAnew(const std::string& path);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  const std::string& path() const { return path_; }

 private:
  explicit ScratchFile(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

// Removes a scratch file of MakeAnew that was left.
void RemoveScratch(const std::string& path);

// AlreadyExists: something is called `path`, be it a link that leads nowhere.
absl::Status CheckFree(const std::string& path);

// Unavailable: the disk of `path` has no room for `bytes` and as much again, for others.
absl::Status CheckRoom(const std::string& path, uint64_t bytes);

// Fills `to` with the bytes of `from` and flushes it; `progress` is told after each part.
absl::Status CopyFlushed(const std::string& from, const std::string& to,
                         const BackupProgress& progress);

// Opens the file as a store is opened, which checks all of it, and closes it.
absl::StatusOr<BackupReport> InspectBackup(const std::string& path,
                                           std::span<const Migration> migrations);

// Gives the file its name for good. AlreadyExists: somebody was quicker.
absl::Status Publish(const ScratchFile& file, const std::string& path);

}  // namespace trireme::coordinator
