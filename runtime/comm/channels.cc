#include "runtime/comm/channels.h"

#include "runtime/base/text.h"

namespace trireme::comm {

absl::Status CheckTags(std::optional<int64_t> largest) {
  if (largest.has_value() && *largest >= int64_t{kLastChannel}) return absl::OkStatus();
  return absl::FailedPreconditionError(base::Text(
      "MPI's largest tag (MPI_TAG_UB) is ", largest.has_value() ? base::Text(*largest) : "not said",
      ", but messages need tags up to ", kLastChannel,
      "; use an MPI library that keeps the standard's least, ", kPromisedTag,
      " (with Open MPI another transport may have more tags: --mca pml ob1)"));
}

}  // namespace trireme::comm
