// What lies in a folder. A disk that fails in the middle is a status here; the ++ of the standard
// library's iterator, and so a loop over it, throws.
#pragma once

#include <functional>
#include <string>
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

}  // namespace trireme::base
