// A size in bytes as people write it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trireme::cli {

// "2GiB", "1500 MB", "1.5TiB" or bytes alone, at least one; case does not matter. InvalidArgument
// says what was expected; a bare "2G", which means either, is refused with both readings.
absl::StatusOr<uint64_t> ParseByteSize(const std::string& text);

}  // namespace trireme::cli
