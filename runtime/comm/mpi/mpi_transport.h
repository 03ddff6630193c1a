// MpiTransport: the Transport over MPI. MPI is called by one thread at a time (the fabric's lock).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/mpi/mpi_api.h"
#include "runtime/comm/mpi/shared_memory.h"
#include "runtime/comm/transport.h"

namespace trireme::comm {

class MpiTransport final : public Transport {
 public:
  // MPI is initialised; `control` is a duplicate of MPI_COMM_WORLD, now owned.
  MpiTransport(MPI_Comm control, std::chrono::milliseconds setup_deadline);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::StatusOr<TransportGroup> AddGroup(const TransportGroupSpec& spec) override;
  void RemoveGroup(int group) override;
  absl::StatusOr<std::shared_ptr<NodeMemory>> Allocate(size_t bytes) override;
  Request Post(const Message& message) override;
  bool Done(Request request) override;
  absl::Status Poll() override;
  size_t max_message_bytes() const override { return size_t{1} << 30; }  // counts are int
  uint64_t Epoch() const override { return 0; }
  void Sleep(uint64_t epoch, int idle_rounds, std::chrono::microseconds at_most) override;
  void Wake(int rank) override {}  // peers and threads poll
  void Abort(const absl::Status& cause) override;
  absl::Status Close() override;

 private:
  struct GroupEntry {
    MPI_Comm comm = MPI_COMM_NULL;
    std::vector<int> ranks;  // of the job; the place is MPI's rank in comm
    SharedMemory window;
  };
  // A posted message, by Request::index.
  struct Posted {
    Message message;
    bool done = false;
  };

  // A message on the control communicator, waited for until the set-up deadline.
  absl::Status Control(Direction direction, void* data, size_t bytes, int peer);
  absl::Status Finish(MPI_Request request, const std::string& what);
  // All members are here and mean the same group.
  absl::Status Assemble(const TransportGroupSpec& spec);
  absl::StatusOr<SharedMemory> ShareWindow(const TransportGroupSpec& spec);
  absl::StatusOr<SharedMemory> Share(std::span<const int> ranks, size_t bytes);
  void Withdraw(int group);
  void Fail(const std::string& what);

  MPI_Comm control_;
  // Of Allocate, in which one at a time is under way.
  struct {
    SharedMemoryAddress own;
    std::vector<SharedMemoryAddress> addresses;
  } allocation_;
  int rank_ = 0;
  int size_ = 0;
  const std::chrono::milliseconds setup_deadline_;
  std::vector<GroupEntry> groups_;
  std::vector<Posted> posted_;
  std::vector<int32_t> free_;
  // Dense, for MPI_Testsome: request i belongs to posted_[owners_[i]].
  std::vector<MPI_Request> requests_;
  std::vector<int32_t> owners_;
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
  absl::Status failure_;
};

}  // namespace trireme::comm
