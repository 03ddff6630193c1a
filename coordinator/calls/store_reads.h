// What readers ask of jobs and events: answered at once where the JobTable can, else from the store
// on threads of its disk, so that a store whose disk hangs holds up only who asks for what it alone
// has.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/calls/rates.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/reconciler/job_table.h"

namespace trireme::coordinator {

// A read is a function (const JobTable&, JobStore*) to a StatusOr. It is called without a store
// first; if what it gives NeedsStore, once more with it, on a thread that may be left behind: it
// owns all else that it touches. Threads: any.
class StoreReads {
 public:
  // `file`: of the store; who is told that its disk hangs hears of it. `threads` as of DiskCalls.
  StoreReads(std::shared_ptr<const JobTable> table, std::shared_ptr<JobStore> store,
             std::string file, DiskCallsOptions threads = {.name = "store reads"})
      : table_(std::move(table)),
        store_(std::move(store)),
        file_(std::move(file)),
        disks_(std::move(threads)) {}

  // Never blocks. `answer` gets what `read` gives, or why the disk was not asked or has not
  // answered, once: before this returns, or from another thread.
  template <typename Read, typename Answer>
  void Ask(const std::string& owner, Read read, Answer answer) {
    auto here = read(*table_, nullptr);
    if (!NeedsStore(here.status())) return answer(std::move(here));
    const absl::Status begun = disks_.Begin(Where(owner), WithStore(read), answer);
    if (!begun.ok()) answer(NotAsked(begun));
  }
  // Likewise; blocks for `deadline` at most, counted from each step of `pulse` if there is one.
  template <typename Read>
  auto Wait(const std::string& owner, std::chrono::milliseconds deadline, Read read,
            std::shared_ptr<DiskPulse> pulse = nullptr) {
    auto here = read(*table_, nullptr);
    if (!NeedsStore(here.status())) return here;
    DiskPath where = Where(owner);
    where.deadline = deadline;
    where.pulse = std::move(pulse);
    return disks_.Wait(where, WithStore(read));
  }
  // Whoever waits is answered, and nobody waits from now on.
  void Stop() { disks_.Stop(); }

  // For streams, which ask the store by themselves.
  DiskCalls& disks() { return disks_; }
  DiskPath Where(const std::string& owner) const { return {file_, owner}; }
  const std::shared_ptr<JobStore>& store() const { return store_; }
  const JobTable& table() const { return *table_; }

 private:
  template <typename Read>
  auto WithStore(Read read) const {
    return [table = table_, store = store_, read] { return read(*table, store.get()); };
  }

  const std::shared_ptr<const JobTable> table_;  // calls that hang have both
  const std::shared_ptr<JobStore> store_;
  const std::string file_;
  DiskCalls disks_;
};

}  // namespace trireme::coordinator
