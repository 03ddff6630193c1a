#include "coordinator/planning/real_folders.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace trireme::coordinator {

bool RealFolders::State::NoneAsked() const {
  return std::none_of(folders.begin(), folders.end(),
                      [](const auto& entry) { return entry.second.asked; });
}

RealFolders::RealFolders(const std::vector<std::string>& folders, Elsewhere elsewhere)
    : elsewhere_(std::move(elsewhere)) {
  for (const std::string& folder : folders) Ask(folder);
}

void RealFolders::Ask(const std::string& folder) const {
  {
    const absl::MutexLock lock(&state_->mutex);
    bool& asked = state_->folders[folder].asked;
    if (asked) return;
    asked = true;
  }
  // A look that is given up before it has run goes without a word: then it is asked for again.
  const std::shared_ptr<void> looked(nullptr, [state = state_, folder](void*) {
    const absl::MutexLock lock(&state->mutex);
    state->folders[folder].asked = false;
    state->fewer_asked.SignalAll();
  });
  const absl::Status begun = elsewhere_(folder, [state = state_, folder, looked] {
    std::error_code error, ignored;
    std::filesystem::path real = std::filesystem::weakly_canonical(folder, error);
    const bool there = !error && std::filesystem::exists(real, ignored);
    const absl::MutexLock lock(&state->mutex);
    Folder& known = state->folders[folder];
    known.there = there;
    if (!error) known.real = std::move(real);
  });
  (void)begun;  // not begun: as one that is given up
}

void RealFolders::Wait(std::chrono::milliseconds most) const {
  const absl::MutexLock lock(&state_->mutex);
  const auto until = std::chrono::steady_clock::now() + most;
  while (!state_->NoneAsked()) {
    if (state_->fewer_asked.WaitUntil(&state_->mutex, until)) return;
  }
}

std::optional<std::filesystem::path> RealFolders::Of(const std::string& folder) const {
  std::optional<std::filesystem::path> real;
  {
    const absl::MutexLock lock(&state_->mutex);
    const Folder& known = state_->folders[folder];
    if (known.there) return known.real;
    real = known.real;
  }
  Ask(folder);
  return real;
}

}  // namespace trireme::coordinator
