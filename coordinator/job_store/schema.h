// The schema of docs/formats/job_store.md as a table of steps from version to version, and the
// proof that a file has it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "coordinator/job_store/connection.h"

namespace trireme::coordinator {

inline constexpr int64_t kApplicationId = 0x54524A53;  // "TRJS"

struct Migration {
  int64_t from = 0;  // raises the version by one; 0: an empty file
  const char* sql = nullptr;
};

// In order, from version 0 on. The newest version is their number.
std::span<const Migration> Migrations();

// Only looks. DataLoss: not a store, or an empty one; FailedPrecondition: newer than `newest`.
absl::Status Identify(const Connection& connection, int64_t newest);

// Runs the steps from the file's version on in one transaction, at whose end the schema must be
// that of a new store (else DataLoss). Nothing is changed unless OK.
absl::Status Migrate(Connection& connection, std::span<const Migration> migrations);

// DataLoss that names `what`, and what to do.
absl::Status Damaged(const Connection& connection, const std::string& what);

// DataLoss: a page, an index, a sum or a sequence is not as it was written. Reads the whole file.
absl::Status CheckPages(const Connection& connection);
absl::Status CheckRows(const Connection& connection);
// What of CheckRows takes no longer with more ended jobs, or events.
absl::Status CheckSmallTables(const Connection& connection);

}  // namespace trireme::coordinator
