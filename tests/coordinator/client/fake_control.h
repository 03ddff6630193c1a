// A daemon of a few lines, on a unix socket: v1.Control over jobs, events and logs in memory, which
// can be slow, refuse, cut its streams in the middle, repeat itself, and go away and come back.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trireme/v1/control.pb.h"

namespace trireme::client {

struct FakeFaults {
  // Asked at the begin of each call with its name ("Get"): may sleep; what is not OK is the answer.
  std::function<absl::Status(const std::string& call)> before;
  // Go with it.
  std::vector<v1::ErrorDetail> details;
  // Each stream ends with UNAVAILABLE after so many messages; 0: never.
  int cut_after = 0;
  // Streams send the message before the one that is asked for as well.
  bool repeat = false;
  // Bytes of a log in one message.
  size_t chunk = 7;
  // Files are listed as larger than what can be read of them.
  size_t bytes_gone = 0;
  // An export stops in its middle until its caller leaves.
  bool hold_exports = false;
  // The newest checkpoint is damaged, and passed over where none is named.
  bool newest_damaged = false;
};

class FakeControl {
 public:
  // Makes a folder for the socket and listens.
  FakeControl();
  // Stops, and removes the folder.
  ~FakeControl();
  FakeControl(const FakeControl&) = delete;
  FakeControl& operator=(const FakeControl&) = delete;

  // Ends what is under way; the state stays. Start listens again on the same socket.
  void Stop();
  void Start();

  const std::string& folder() const;
  std::string address() const;

  void set_faults(FakeFaults faults);
  // Stored as they are; a job by its id, the newest of a name is that of the largest id.
  void Put(const v1::Job& job);
  void Put(const v1::Node& node);
  // Appended, with the next sequence number.
  void Tell(v1::Event event);
  // A change of a job's state, in the job and as an event.
  void Enter(uint64_t job_id, v1::JobState state, const std::string& reason);
  // To watchers, once each.
  void Report(uint64_t job_id, const v1::Progress& progress);
  void Append(uint32_t attempt, int rank, const std::string& log);
  void AddCheckpoint(const v1::CheckpointInfo& checkpoint);
  // In the run folder of every job.
  void PutFile(const std::string& path, const std::string& content);

  v1::Job job(uint64_t id) const;
  // Names of the calls so far, in order.
  std::vector<std::string> calls() const;
  // What the last one brought as "authorization".
  std::string authorization() const;
  v1::SubmitRequest last_submit() const;
  double last_grace() const;
  // Exports whose caller left in their middle.
  int exports_left() const;

 private:
  class Service;
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace trireme::client
