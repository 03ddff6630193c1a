// Two replicas as threads that train a small job whole, as `trireme-worker` does from its job file
// to its report, or generate from it. They issue the same waits in the same order, and all of them
// are noted: so it is known, at any speed, for what a rank waits while another one is elsewhere.
#pragma once

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/recorder/flight_recorder.h"
#include "tests/runtime/engine/forwarding_fabric.h"
#include "tests/temporary_folder.h"
#include "worker/training.h"

namespace trireme::worker {

inline constexpr int kPair = 2;
// Of what the tests themselves wait for; a right program takes far less.
inline constexpr std::chrono::seconds kLimit{60};

// The waits of both ranks, in order.
class Waits {
 public:
  void Begin(int rank, std::chrono::milliseconds deadline) {
    const std::lock_guard lock(mutex_);
    of_[Index(rank)].push_back(deadline);
    changed_.notify_all();
  }
  // A rank that ended badly stays until the other one has ended, or waits for it in vain.
  void End(int rank) {
    std::unique_lock lock(mutex_);
    ended_[Index(rank)] = true;
    changed_.notify_all();
    changed_.wait_for(lock, kLimit, [&] { return IsAhead(1 - rank); });
  }
  // While rank 0 stands still between two waits: the deadline of the one that rank 1 has gone on to
  // and which rank 0 has not; zero: rank 1 has ended.
  std::chrono::milliseconds OfRankOneAlone() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kLimit, [&] { return IsAhead(1); }));
    const size_t common = of_[0].size();
    return of_[1].size() > common ? of_[1][common] : std::chrono::milliseconds(0);
  }
  // Whether the rank begins its wait `number`, from 0.
  bool Reaches(int rank, size_t number) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(
        lock, kLimit, [&] { return ended_[Index(rank)] || of_[Index(rank)].size() > number; });
  }
  std::vector<std::chrono::milliseconds> Of(int rank) {
    const std::lock_guard lock(mutex_);
    return of_[Index(rank)];
  }

 private:
  static size_t Index(int rank) { return static_cast<size_t>(rank); }
  bool IsAhead(int rank) const {
    return ended_[Index(rank)] || of_[Index(rank)].size() > of_[Index(1 - rank)].size();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::vector<std::chrono::milliseconds>, kPair> of_;
  std::array<bool, kPair> ended_{};
};

// Tells of each wait before it begins; one of the host's fails where that says so.
class NotingCommunicator final : public engine::ForwardingCommunicator {
 public:
  using Note = std::function<absl::Status(std::chrono::milliseconds deadline)>;
  NotingCommunicator(std::unique_ptr<comm::Communicator> inner, Note note)
      : ForwardingCommunicator(std::move(inner)), note_(std::move(note)) {}
  absl::Status WaitHost(comm::Ticket ticket, std::chrono::milliseconds deadline) override {
    RETURN_IF_ERROR(note_(deadline));
    return ForwardingCommunicator::WaitHost(ticket, deadline);
  }
  void WaitOn(comm::Ticket ticket, tensor::Stream& stream,
              std::chrono::milliseconds deadline) override {
    note_(deadline).IgnoreError();
    ForwardingCommunicator::WaitOn(ticket, stream, deadline);
  }

 private:
  const Note note_;
};

// `run` on both ranks; their exit codes. `on_group` hears of each group that is made, `on_wait` of
// each wait, both on the rank's thread. The host's waits of a rank that `is_cut_off` fail.
struct PairRun {
  std::function<base::ExitCode(comm::Fabric&)> run;
  std::function<void(int rank, std::string_view name)> on_group = nullptr;
  std::function<void(int rank)> on_wait = nullptr;
  std::function<bool(int rank)> is_cut_off = nullptr;
};

inline std::vector<base::ExitCode> RunPair(Waits& waits, const PairRun& pair) {
  std::vector<base::ExitCode> codes(kPair);
  comm::RunRanks(kPair, [&](comm::Fabric& own) -> absl::Status {
    const int rank = own.rank();
    engine::ForwardingFabric fabric(
        own,
        [&, rank](std::unique_ptr<comm::Communicator> group,
                  std::string_view name) -> std::unique_ptr<comm::Communicator> {
          if (pair.on_group) pair.on_group(rank, name);
          if (group->size() == 1) return group;
          return std::make_unique<NotingCommunicator>(
              std::move(group), [&, rank](std::chrono::milliseconds deadline) {
                if (pair.on_wait) pair.on_wait(rank);
                waits.Begin(rank, deadline);
                return pair.is_cut_off && pair.is_cut_off(rank) ? absl::UnavailableError("cut off")
                                                                : absl::OkStatus();
              });
        });
    codes[static_cast<size_t>(rank)] = pair.run(fabric);
    waits.End(rank);
    // The end of the job, as main has it.
    const base::ExitCode code = codes[static_cast<size_t>(rank)];
    if (code == base::kOk || code == base::kCheckpointed) return absl::OkStatus();
    return absl::AbortedError("ended");
  });
  return codes;
}

// A job of six steps in a folder of its own, a checkpoint every two.
class SmallRun {
 public:
  explicit SmallRun(const std::string& text = "one two three four five six seven eight nine ten ") {
    std::ofstream words(folder_ / "text.txt");
    for (int line = 0; line < 20; ++line) words << text << "\n";
    std::ofstream(folder_ / "job.yaml") << R"(name: small
seed: 7
model:
  config: {model_type: gpt2, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
           max_position_embeddings: 8}
data: {text_files: [text.txt], tokenizer: char, sequence_length: 8, validation_fraction: 0.1}
training: {steps: 6, global_batch_size: 4, micro_batch_size: 2}
checkpoint: {every_steps: 2, keep: 0}
evaluation: {every_steps: 3, samples: 4}
runtime: {threads: 1, log_every_steps: 1}
generation: {prompt: "t", max_new_tokens: 3}
)";
  }

  std::string Path(const std::string& name) const { return folder_ / name; }
  std::string Checkpoint(int step) const {
    return Path(base::Text("run/checkpoints/step-0000000", step));
  }
  // As a rank of this run has them.
  TrainingOptions Options() const {
    TrainingOptions options;
    options.job = Path("job.yaml");
    options.run.run_directory = Path("run");
    return options;
  }
  // What the rank's flight recorder says of its end.
  std::string Failure(int rank) const {
    const auto recording =
        recorder::ReadRecording(Path(base::Text("run/recorder/rank-00", rank, ".rec")));
    REQUIRE(recording.status().ToString() == "OK");
    return recording->failure;
  }
  // Both ranks by the same options.
  std::vector<base::ExitCode> Train(const TrainingOptions& options) const {
    Waits waits;
    return RunPair(waits,
                   {.run = [&](comm::Fabric& fabric) { return RunTraining(options, fabric); }});
  }

 private:
  const tests::TemporaryFolder folder_;
};

inline const std::vector<base::ExitCode> kBothOk(kPair, base::kOk);

}  // namespace trireme::worker
