#include "coordinator/calls/export_state.h"

#include <utility>

namespace trireme::coordinator {

void ExportState::Tell(const v1::ExportResponse& response) {
  const absl::MutexLock lock(&mutex_);
  news_ = response;
}

void ExportState::End(const absl::Status& status) {
  const absl::MutexLock lock(&mutex_);
  ended_ = status;
}

std::optional<v1::ExportResponse> ExportState::Take() {
  const absl::MutexLock lock(&mutex_);
  return std::exchange(news_, std::nullopt);
}

std::optional<absl::Status> ExportState::ended() const {
  const absl::MutexLock lock(&mutex_);
  return ended_;
}

}  // namespace trireme::coordinator
