// What the server's streams have in common: one message is under way at a time, and the next is
// looked for when it is done or when somebody says that there is news. So who reads slowly holds
// back one message and nobody else.
#pragma once

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/calls/stream_set.h"

namespace trireme::coordinator {

// `Wire` carries the messages: a base class with SendMessage(const
// Response*) and EndCall(const absl::Status&), whose virtual OnWriteDone, OnCancel and OnDone it
// calls from any of its threads, OnDone last of all and never from within EndCall. Deletes itself
// then. Threads: any.
template <typename Response, typename Wire>
class PacedStream : public Wire, public LiveStream {
 public:
  // `streams` is to hold it before anybody else calls.
  template <typename... ForWire>
  explicit PacedStream(StreamSet& streams, ForWire&&... for_wire)
      : Wire(std::forward<ForWire>(for_wire)...), streams_(streams) {}

  // Before anybody else calls: what it is about is found out elsewhere. It waits for Begin, once.
  void Hold() {
    const absl::MutexLock lock(&mutex_);
    Wait();
  }
  void Begin(const absl::Status& found) override {
    const absl::MutexLock lock(&mutex_);
    if (!found.ok()) Close(found);
    Resume();
  }
  void Refuse(const absl::Status& status) override {
    const absl::MutexLock lock(&mutex_);
    Close(status);
  }
  void Look() override {
    const absl::MutexLock lock(&mutex_);
    if (!writing_ && !waiting_ && !closed_) SendNext();
  }
  void OnWriteDone(bool ok) override {
    const absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (closed_) return;
    if (!ok) return Close(absl::CancelledError("the caller has left"));
    SendNext();
  }
  void OnCancel() override { Refuse(absl::CancelledError("the caller has left")); }
  void OnDone() override {
    streams_.Remove(this);
    // After OnCancel. gRPC's library orders that, unseen by TSan; the mutex does as well.
    { const absl::MutexLock lock(&mutex_); }
    delete this;
  }

 protected:
  // Puts the next message into response_ and calls Write, calls Close or Wait, or does none of it:
  // then there is nothing yet.
  virtual void SendNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    writing_ = true;
    this->SendMessage(&response_);
  }
  // From SendNext: what is next is found out elsewhere. Until Resume nothing is looked for, and
  // whoever ends the stream meanwhile ends it then: so it is there for whoever calls that.
  void Wait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { waiting_ = true; }
  void Resume() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!waiting_) return;
    waiting_ = false;
    closed_ ? this->EndCall(end_) : SendNext();
  }
  void Close(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (closed_) return;
    closed_ = true;
    if (waiting_) {
      end_ = status;
    } else {
      this->EndCall(status);
    }
  }
  bool closed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_; }

  absl::Mutex mutex_;
  Response response_ ABSL_GUARDED_BY(mutex_);

 private:
  StreamSet& streams_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // of one that was closed while it waits
};

}  // namespace trireme::coordinator
