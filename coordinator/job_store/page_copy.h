// The pages of an open store, copied into another file in small steps while the store goes on:
// SQLite's online backup. Its source is the store's own connection, which no other one can share
// the file with; so what is committed between two steps is taken along and nothing begins anew.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/job_store/connection.h"

struct sqlite3_backup;

namespace trireme::coordinator {

// Threads: one at a time, with the mutex of the store's connection, from Begin to the destructor.
class PageCopy {
 public:
  // `path`: an empty file. Nothing of it is flushed: a copy that is interrupted is thrown away.
  static absl::StatusOr<std::unique_ptr<PageCopy>> Begin(Connection& store,
                                                         const std::string& path);
  PageCopy(const PageCopy&) = delete;
  PageCopy& operator=(const PageCopy&) = delete;
  ~PageCopy();

  // A quarter of a MiB. True: that was the last one, and the copy is what the store is now.
  // Unavailable: a disk, or the store has rolled so much back meanwhile that no end is seen.
  absl::StatusOr<bool> Step();

  // In bytes; 0 before the first step.
  uint64_t done() const { return page_bytes_ * (pages_ - left_); }
  uint64_t total() const { return page_bytes_ * pages_; }

 private:
  PageCopy(Connection& store, std::unique_ptr<Connection> copy, uint64_t page_bytes);
  absl::Status StatusOf(int result) const;

  Connection& store_;
  const std::unique_ptr<Connection> copy_;
  const uint64_t page_bytes_;
  sqlite3_backup* backup_ = nullptr;
  uint64_t pages_ = 0;
  uint64_t left_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace trireme::coordinator
