#include "coordinator/job_store/page_copy.h"

#include <sqlite3.h>

#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

// The store's mutex is held for one step: about a millisecond.
constexpr int kPagesPerStep = 64;
// A transaction that is rolled back after it has written pages makes SQLite begin anew.
constexpr uint64_t kMostPasses = 16;

}  // namespace

PageCopy::PageCopy(Connection& store, std::unique_ptr<Connection> copy, uint64_t page_bytes)
    : store_(store), copy_(std::move(copy)), page_bytes_(page_bytes) {}

PageCopy::~PageCopy() { sqlite3_backup_finish(backup_); }

absl::StatusOr<std::unique_ptr<PageCopy>> PageCopy::Begin(Connection& store,
                                                          const std::string& path) {
  ASSIGN_OR_RETURN(const int64_t page_bytes, store.Integer("PRAGMA page_size"));
  ASSIGN_OR_RETURN(std::unique_ptr<Connection> copy, Connection::Open(path));
  RETURN_IF_ERROR(copy->Execute("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF"));
  std::unique_ptr<PageCopy> made(
      new PageCopy(store, std::move(copy), static_cast<uint64_t>(page_bytes)));
  sqlite3* const target = made->copy_->database();
  made->backup_ = sqlite3_backup_init(target, "main", store.database(), "main");
  if (made->backup_ == nullptr) return made->copy_->StatusOf(sqlite3_extended_errcode(target));
  return made;
}

absl::StatusOr<bool> PageCopy::Step() {
  const int result = sqlite3_backup_step(backup_, kPagesPerStep);
  if (result != SQLITE_OK && result != SQLITE_DONE) return StatusOf(result);
  pages_ = static_cast<uint64_t>(sqlite3_backup_pagecount(backup_));
  left_ = static_cast<uint64_t>(sqlite3_backup_remaining(backup_));
  if (result == SQLITE_DONE) return true;
  if (++steps_ <= kMostPasses * (pages_ / kPagesPerStep + 1)) return false;
  return absl::UnavailableError(
      base::Text(store_.path(),
                 ": so many of its changes were undone meanwhile that its copy came to no "
                 "end; try again"));
}

// SQLite does not say of which file it is. Pages come from the store, and are written to the copy.
absl::Status PageCopy::StatusOf(int result) const {
  const int kind = result & 0xFF;
  const bool of_store = kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB || kind == SQLITE_LOCKED ||
                        result == SQLITE_IOERR_READ || result == SQLITE_IOERR_SHORT_READ;
  return of_store ? store_.StatusOf(result) : copy_->StatusOf(result);
}

}  // namespace trireme::coordinator
