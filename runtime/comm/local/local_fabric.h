// LocalHub: n ranks as threads of one process. A message is one memcpy from the sender's buffer to
// the receiver's, made by whichever side comes second. Waiting ranks sleep on condition variables,
// so that many ranks share few cores.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/message_fabric.h"

namespace trireme::comm {

enum class LocalMode : uint8_t {
  kEager,  // a message of up to 4 KiB is copied out of the sender's buffer at once, as MPI does
  kRendezvous,  // a send completes only once the receiver has posted: finds deadlocks that eager
                // sends hide
};

struct LocalOptions {
  LocalMode mode = LocalMode::kEager;
  FabricOptions fabric;
  // Splits larger messages; small values exercise the splitting.
  size_t max_message_bytes = size_t{1} << 40;
  // Of Allocate and Close.
  std::chrono::milliseconds close_deadline{60000};
};

class LocalMailroom;

class LocalHub {
 public:
  explicit LocalHub(int ranks, LocalOptions options = {});
  ~LocalHub();

  // The fabric of one rank; once per rank. It may outlive the hub object, and goes to the rank's
  // thread. Abort on one rank (or Fabric::Close never reached after a failure) makes the others
  // fail with Unavailable, as a dead process does.
  std::unique_ptr<Fabric> Rank(int rank);
  int size() const;

 private:
  std::shared_ptr<LocalMailroom> mailroom_;
  LocalOptions options_;
};

// Runs `run` once per rank, each in a thread, and returns all statuses. A rank that returns a
// failure is aborted, so that the others do not wait for it. Close is not needed.
std::vector<absl::Status> RunRanks(int ranks, const std::function<absl::Status(Fabric&)>& run,
                                   LocalOptions options = {});

}  // namespace trireme::comm
