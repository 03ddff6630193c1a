// JobStore on SQLite. Beside JobStore::Open only for tests, which bring migrations of their own.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/job_store/schema.h"

namespace trireme::coordinator {

// JobStore::Open, with the newest version being the number of `migrations`, which outlive the
// store.
absl::StatusOr<std::unique_ptr<JobStore>> OpenSqliteStore(const std::string& path,
                                                          std::span<const Migration> migrations,
                                                          StoreCheck check = StoreCheck::kAll);

// What Events runs: ?1 after_sequence, ?2 limit, ?3 job_id.
inline constexpr const char* kEventsSql =
    "SELECT event, sum = row_sum(sequence, job_id, event), sequence FROM events"
    " WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";
inline constexpr const char* kEventsOfJobSql =
    "SELECT event, sum = row_sum(sequence, job_id, event), sequence FROM events"
    " WHERE job_id = ?3 AND sequence > ?1 ORDER BY sequence LIMIT ?2";

}  // namespace trireme::coordinator
