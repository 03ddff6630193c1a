#include "coordinator/agent/left_snapshots.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "runtime/base/readable_bytes.h"

namespace trireme::agent {
namespace {

// A look is some calls for each file; what is left stays for hours.
std::chrono::nanoseconds LookEvery(std::chrono::milliseconds keep) {
  using std::chrono::milliseconds;
  return std::clamp<milliseconds>(keep / 60, milliseconds(10), std::chrono::minutes(1));
}

}  // namespace

LeftSnapshots::LeftSnapshots(LeftSnapshotsOptions options)
    : look_every_(LookEvery(options.keep)),
      sweep_(std::move(options.root), options.keep),
      thread_({.name = "snapshots",
               .between = [this](int64_t now_unix_ns) { return Look(now_unix_ns); }}) {}

int64_t LeftSnapshots::Look(int64_t now_unix_ns) {
  const auto now = checkpoint::SnapshotSweep::Clock::now();
  const auto looked = sweep_.Turn(now, [this] { return !ends_; });
  for (const auto& left : looked.late) {
    spdlog::warn(
        "{} holds {} of a run, up to step {}, that no rank has come back to for half of the hours "
        "of --keep-snapshots-hours; go on with the run whose snapshots.key is the end of that "
        "name, or what it has in memory alone is lost",
        left.folder, base::ReadableBytes(left.bytes), left.step);
  }
  for (const auto& left : looked.removed) {
    spdlog::warn(
        "{} removed: {} of snapshots, up to step {}, that no rank has held for the hours of "
        "--keep-snapshots-hours; its run goes on from its last checkpoint",
        left.folder, base::ReadableBytes(left.bytes), left.step);
  }
  return now_unix_ns + look_every_.count();
}

}  // namespace trireme::agent
