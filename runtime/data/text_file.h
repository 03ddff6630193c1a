// Files read in chunks, so that text of gigabytes needs no second copy in memory, and a file that
// changes under us is an error instead of the SIGBUS that a map would give.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/real_path.h"

namespace trireme::data {

// What an errno says of the file: NotFound or FailedPrecondition where the path is wrong,
// Unavailable where its disk, or this node, does not give it: that may pass, or be so here alone.
absl::Status FileError(const std::string& path, int error);

// Calls `visit` with the bytes of `path`, in order, up to a few MiB at a time, none empty. Errors:
// FileError; a folder and an empty file are errors too. A status of `visit` ends the reading and is
// returned. Links::kRefuse: `path` is absolute, and a link anywhere on the way is an error.
absl::Status ReadChunks(const std::string& path, base::Links links,
                        const std::function<absl::Status(std::string_view)>& visit);

// InvalidArgument: it has no byte.
absl::Status EmptyFile(const std::string& path);

// How many bytes it has, without reading any; errors as of ReadChunks, but none of an empty one.
absl::StatusOr<uint64_t> LengthOf(const std::string& path, base::Links links);

// As ReadChunks, but code points of UTF-8: InvalidArgument names the file and the byte where it is
// none.
absl::Status ReadCodePoints(const std::string& path, base::Links links,
                            const std::function<absl::Status(std::u32string_view)>& visit);

}  // namespace trireme::data
