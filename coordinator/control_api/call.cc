#include "coordinator/control_api/call.h"

#include "coordinator/planning/submission.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kMostMessage = 3500;  // percent-encoded, as it travels
constexpr size_t kMostDetails = 3000;

size_t EncodedBytes(char c) { return c >= ' ' && c < 127 && c != '%' ? 1 : 3; }

bool BeginsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

std::string Cut(std::string text, size_t most) {
  size_t encoded = 0, whole = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (BeginsCharacter(text[at])) whole = at;
    encoded += EncodedBytes(text[at]);
    if (encoded > most) return text.substr(0, whole) + " ...";
  }
  return text;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status, const std::vector<v1::ErrorDetail>& details) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = Cut(base::MessageOf(status), kMostMessage);
  std::vector<v1::ErrorDetail> told;
  size_t bytes = 0;
  for (const v1::ErrorDetail& detail : details) {
    bytes += detail.ByteSizeLong();
    if (bytes > kMostDetails) break;
    told.push_back(detail);
  }
  if (told.empty()) {
    v1::ErrorDetail& detail = told.emplace_back();
    detail.set_field(FaultOf(status, "").path);
    detail.set_message(Cut(message, kMostDetails / 3));
    detail.set_retry_after_ms(RetryAfterMs(status));
  }
  // Both enumerations have the same numbers.
  return {static_cast<grpc::StatusCode>(status.code()), message,
          client::PackErrorDetails(status.code(), Cut(message, kMostDetails / 3), told)};
}

}  // namespace trireme::coordinator
