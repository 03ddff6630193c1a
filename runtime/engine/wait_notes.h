// WaitNotes: the long waits of a rank's groups, noted in its flight recorder while the object
// lives.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/recorder/flight_recorder.h"

namespace trireme::engine {

// Threads: any that waits, under the fabric's lock.
class WaitNotes final : public comm::WaitWatcher {
 public:
  // Both outlive it.
  WaitNotes(comm::Fabric& fabric, recorder::FlightRecorder& recorder)
      : fabric_(fabric), recorder_(recorder) {
    fabric_.WatchWaits(this);
  }
  WaitNotes(const WaitNotes&) = delete;
  ~WaitNotes() override { fabric_.WatchWaits(nullptr); }

  void WaitsInVain(const comm::VainWait& wait) override {
    recorder_.NoteWait({.since_ns = wait.since.time_since_epoch() / std::chrono::nanoseconds(1),
                        .peer = wait.peer,
                        .awaited = static_cast<uint32_t>(wait.awaited),
                        .collective = wait.collective,
                        .group = std::string(wait.group)});
  }
  void WaitIsOver() override { recorder_.NoteWait({}); }

 private:
  comm::Fabric& fabric_;
  recorder::FlightRecorder& recorder_;
};

}  // namespace trireme::engine
