#include "coordinator/client/error_details.h"

#include <algorithm>
#include <string_view>

namespace trireme::client {
namespace {

constexpr const char* kPayload = "type.googleapis.com/trireme.v1.ErrorStatus";

}  // namespace

std::string PackErrorDetails(absl::StatusCode code, const std::string& message,
                             const std::vector<v1::ErrorDetail>& details) {
  v1::ErrorStatus status;
  status.set_code(static_cast<int>(code));
  status.set_message(message);
  for (const v1::ErrorDetail& detail : details) status.add_details()->PackFrom(detail);
  return status.SerializeAsString();
}

std::vector<v1::ErrorDetail> UnpackErrorDetails(const std::string& packed) {
  std::vector<v1::ErrorDetail> details;
  v1::ErrorStatus status;
  if (packed.empty() || !status.ParseFromString(packed)) return details;
  for (const auto& any : status.details()) {
    v1::ErrorDetail detail;
    if (any.UnpackTo(&detail)) details.push_back(std::move(detail));
  }
  return details;
}

uint64_t RetryAfterMs(const std::string& packed) {
  uint64_t longest = 0;
  for (const v1::ErrorDetail& detail : UnpackErrorDetails(packed)) {
    longest = std::max<uint64_t>(longest, detail.retry_after_ms());
  }
  return longest;
}

void AttachErrorDetails(absl::Status& status, const std::string& packed) {
  if (!packed.empty()) status.SetPayload(kPayload, absl::Cord(packed));
}

std::vector<v1::ErrorDetail> ErrorDetailsOf(const absl::Status& status) {
  const auto packed = status.GetPayload(kPayload);
  return packed ? UnpackErrorDetails(std::string(*packed)) : std::vector<v1::ErrorDetail>();
}

std::string WithDetails(const std::string& message, const std::vector<v1::ErrorDetail>& details) {
  std::string text = message;
  for (const v1::ErrorDetail& detail : details) {
    // A message that holds all that the detail says is not followed by its echo.
    std::string_view field = detail.field();
    if (field.starts_with("job.")) field.remove_prefix(4);
    const bool whole = field.find('.') == std::string_view::npos || text == detail.message();
    const bool said = text.find(detail.message()) != std::string::npos &&
                      (whole || text.find(field) != std::string::npos);
    if (said) continue;
    if (!text.empty()) text += '\n';
    if (!detail.field().empty()) text += detail.field() + ": ";
    text += detail.message();
  }
  return text;
}

}  // namespace trireme::client
