// The Slurm jobs of this user: sbatch, squeue and scancel on a thread of their own, so that a
// controller that hangs keeps nobody else waiting.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/process/task_thread.h"
#include "coordinator/slurm/answers.h"

namespace trireme::slurm {

// Nodes, CPUs, memory and GPUs of a partition by sinfo; empty: the default one. Blocks, 30 s at
// most.
absl::StatusOr<Capacity> CapacityOf(const std::string& partition);

// What squeue last said.
struct View {
  int64_t asked_ns = 0;  // CLOCK_MONOTONIC before it was called; 0: it has not answered yet
  std::vector<SlurmJob> jobs;
};

struct Submission {
  bool under_way = false;
  bool withdrawn = false;
  // InvalidArgument: Slurm refuses it; else Slurm may answer another time.
  absl::Status status;
  uint64_t id = 0;
  int64_t answered_ns = 0;  // CLOCK_MONOTONIC
};

// Any thread; nothing blocks but the destructor, which waits for the calls that were asked for.
class Queue {
 public:
  Queue();

  // Its squeue is called every two seconds as long as somebody asks so at least every ten.
  std::shared_ptr<const View> view();
  // Hands `script` to sbatch, unless a submission of this name is under way or has been taken.
  void Submit(const std::string& name, const std::string& script);
  // Of this name by this object.
  std::optional<Submission> Find(const std::string& name) const;
  // Cancels what was submitted by this name, also if that is under way yet, and forgets it.
  void Withdraw(const std::string& name);
  // What is withdrawn while it is under way is cancelled all the same.
  void Forget(const std::string& name);
  // USR1 to its ranks.
  void AskToStop(uint64_t id);
  // Ends it, pending or running.
  void Cancel(uint64_t id);
  // What the batch script of an ended job has exited with, by scontrol; -1: Slurm does not know.
  // Empty: no answer yet, ask again. An answer is given once.
  std::optional<int> TakeExitCode(uint64_t id);

 private:
  int64_t Look(int64_t now_unix_ns);
  void Call(std::vector<std::string> argv);

  mutable absl::Mutex mutex_;
  std::shared_ptr<const View> view_ ABSL_GUARDED_BY(mutex_);
  int64_t wanted_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Submission> submissions_ ABSL_GUARDED_BY(mutex_);
  // Asked for; empty: no answer yet.
  std::map<uint64_t, std::optional<int>> exit_codes_ ABSL_GUARDED_BY(mutex_);
  coordinator::TaskThread thread_;
};

}  // namespace trireme::slurm
