// What the server's streams have in common: one message is under way at a time, and the next is
// looked for when it is done or when somebody says that there is news. So who reads slowly holds
// back one message and nobody else.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/control_api/call.h"
#include "coordinator/control_api/stream_set.h"

namespace trireme::coordinator {

// Deletes itself when gRPC is done with it. Threads: any.
template <typename Response>
class MessageStream : public grpc::ServerWriteReactor<Response>, public LiveStream {
 public:
  // `streams` holds it already.
  explicit MessageStream(StreamSet& streams) : streams_(streams) {}

  // Instead of any message.
  void Refuse(const grpc::Status& status) {
    const absl::MutexLock lock(&mutex_);
    Close(status);
  }
  void Look() override {
    const absl::MutexLock lock(&mutex_);
    if (!writing_ && !closed_) SendNext();
  }
  void End() override {
    Refuse(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is stopping; ask again"));
  }
  void OnWriteDone(bool ok) override {
    const absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (closed_) return;
    if (!ok) return Close(grpc::Status::CANCELLED);
    SendNext();
  }
  void OnCancel() override { Refuse(grpc::Status::CANCELLED); }
  void OnDone() override {
    streams_.Remove(this);
    delete this;
  }

 protected:
  // Puts the next message into response_ and calls Write, calls Close, or does neither: then there
  // is nothing yet.
  virtual void SendNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    writing_ = true;
    this->StartWrite(&response_);
  }
  void Close(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (closed_) return;
    closed_ = true;
    this->Finish(status);
  }
  bool closed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_; }

  absl::Mutex mutex_;
  Response response_ ABSL_GUARDED_BY(mutex_);

 private:
  StreamSet& streams_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trireme::coordinator
