// The stream of who has asked for long work: sends what is newest of it; the end, when there is
// one.
#pragma once

#include <memory>
#include <utility>

#include "coordinator/calls/call_progress.h"
#include "coordinator/control_api/message_stream.h"

namespace trireme::coordinator {

// A caller who leaves ends the work.
template <typename Response>
class ProgressStream : public MessageStream<Response> {
 public:
  ProgressStream(std::shared_ptr<CallProgress<Response>> progress, StreamSet& streams)
      : MessageStream<Response>(streams), progress_(std::move(progress)) {
    progress_->OnNews([this, &streams] { streams.LookAgain(this); });
  }
  ~ProgressStream() override { progress_->CallerLeft(); }

 private:
  void SendNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mutex_) {
    // Asked before the news are, of which the last comes before the end.
    const auto ended = progress_->ended();
    if (auto news = progress_->Take()) {
      this->response_ = *std::move(news);
      this->Write();
    } else if (ended) {
      this->Close(*ended);
    }
  }

  const std::shared_ptr<CallProgress<Response>> progress_;
};

}  // namespace trireme::coordinator
