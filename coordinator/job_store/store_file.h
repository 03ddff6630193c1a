// The file of a job store: made whole or not at all, private, recognised before it is used.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/job_store/connection.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/job_store/schema.h"

namespace trireme::coordinator {

// Makes or opens `path` (":memory:": in memory) and brings it to the newest version of
// `migrations`; errors as JobStore::Open. The connection is the only one to the file.
absl::StatusOr<std::unique_ptr<Connection>> OpenStoreFile(const std::string& path,
                                                          std::span<const Migration> migrations,
                                                          StoreCheck check = StoreCheck::kAll);

// The next opening checks all of it, whatever it is asked for, until one finds no fault. Gives
// `damage`, and with it why that could not be noted, if it could not.
absl::Status NoteDamage(const std::string& path, const absl::Status& damage);

}  // namespace trireme::coordinator
