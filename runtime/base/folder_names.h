// What lies in a folder. A disk that fails in the middle is a status here; the ++ of the standard
// library's iterator, and so a loop over it, throws.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::base {

// Calls `visit` with each name, in no order, also with those before an error. NotFound: there is no
// such folder; Unavailable: it cannot be read, or not to its end. Blocks on the disk.
absl::Status VisitNames(const std::string& folder,
                        const std::function<void(const std::string& name)>& visit);

// All of them, for folders that nobody fills at will.
absl::StatusOr<std::vector<std::string>> FolderNames(const std::string& folder);

// "12"; nothing for names that are no number, or a larger one than `most`.
std::optional<uint64_t> NumberIn(std::string_view name, uint64_t most = UINT64_MAX);
// The largest number among the names in a folder; 0: none, or there is no folder. Errors: those of
// VisitNames.
absl::StatusOr<uint64_t> LargestNumber(const std::string& folder, uint64_t most = UINT64_MAX);

}  // namespace trireme::base
