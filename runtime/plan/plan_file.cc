#include "runtime/plan/plan_file.h"

#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"
#include "runtime/plan/planner.h"

namespace trireme::plan {

namespace io = google::protobuf::io;

std::string SerializePlan(const v1::Plan& plan) {
  std::string bytes;
  io::StringOutputStream out(&bytes);
  io::GzipOutputStream::Options options;
  options.format = io::GzipOutputStream::GZIP;
  io::GzipOutputStream gzip(&out, options);
  TRIREME_CHECK(plan.SerializeToZeroCopyStream(&gzip));
  TRIREME_CHECK(gzip.Close());
  return bytes;
}

absl::StatusOr<v1::Plan> ParsePlan(std::string_view bytes) {
  io::ArrayInputStream in(bytes.data(), static_cast<int>(bytes.size()));
  io::GzipInputStream gzip(&in, io::GzipInputStream::GZIP);
  v1::Plan plan;
  // A stream that is not gzip reads as an empty message, so the magic number is looked at first.
  if (!bytes.starts_with("\x1f\x8b") || !plan.ParseFromZeroCopyStream(&gzip)) {
    return absl::DataLossError(
        absl::StrCat("these ", bytes.size(), " bytes are not a plan, or it was cut short"));
  }
  if (!IsPlanVersion(plan.version())) {
    return absl::AbortedError(absl::StrCat("the plan has version ", plan.version(),
                                           ", this program reads ", kPlanVersion, " and ",
                                           kPlanVersionWithSlots));
  }
  return plan;
}

absl::StatusOr<v1::Plan> ReadPlanFile(const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 30;
  const absl::StatusOr<std::string> bytes = base::ReadWholeFile(path, kMostBytes);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(absl::StrCat("there is no plan ", path));
  }
  RETURN_IF_ERROR(bytes.status());
  absl::StatusOr<v1::Plan> plan = ParsePlan(*bytes);
  if (!plan.ok()) return base::Annotate(plan.status(), path);
  return plan;
}

}  // namespace trireme::plan
