// The streams behind Client::Watch, Logs and others: gRPC's asynchronous reader, pulled by its
// owner's thread, opened again from behind the last message whenever it breaks. Only client.cc
// includes this.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "coordinator/client/call_status.h"
#include "coordinator/client/channel.h"
#include "coordinator/client/client.h"
#include "coordinator/client/error_details.h"
#include "runtime/base/steady_wait.h"

namespace trireme::client {

constexpr std::chrono::milliseconds kFirstDelay{100};
constexpr std::chrono::milliseconds kLongestDelay{3000};
// Whatever a daemon says.
constexpr uint64_t kLongestPauseMs = 60000;

// What is shorter is no interruption that anybody needs to hear of.
constexpr std::chrono::milliseconds kWorthSaying{300};

// How long the daemon wants to be left alone; 0: the refusal is no matter of time.
inline std::chrono::milliseconds PauseOf(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return {};
  const uint64_t pause_ms = RetryAfterMs(status.error_details());
  return std::chrono::milliseconds(std::min(pause_ms, kLongestPauseMs));
}

template <typename Request, typename Response>
struct StreamRules {
  using Reader = std::unique_ptr<grpc::ClientAsyncReader<Response>>;
  using Channel = std::shared_ptr<grpc::Channel>;
  std::function<absl::StatusOr<Channel>()> channel;  // of each try
  std::function<Reader(const Channel&, grpc::ClientContext&, const Request&,
                       grpc::CompletionQueue&)>
      prepare;
  // Makes `request` what goes on behind `response`; false: that one has been there before.
  std::function<absl::StatusOr<bool>(Request& request, Response& response)> accept;
  CallPlace place;
  std::chrono::milliseconds reconnect_for;
  // What is interrupted is over; only its beginning is waited for.
  bool once = false;
};

template <typename Request, typename Response>
class ReconnectingStream final : public Stream<Response> {
 public:
  ReconnectingStream(Request request, StreamRules<Request, Response> rules)
      : request_(std::move(request)), rules_(std::move(rules)) {}

  absl::StatusOr<Pull> Next(Response& message, std::chrono::milliseconds wait) override {
    const Clock::time_point until = Clock::now() + wait;
    while (!end_) {
      if (connection_ == nullptr) {
        std::this_thread::sleep_until(std::min(next_try_, until));
        if (Clock::now() < next_try_) return Pull::kNothing;
        auto channel = rules_.channel();
        if (!channel.ok()) {
          Undialled(channel.status());
          continue;
        }
        connection_ = std::make_unique<Connection>(rules_, *std::move(channel), request_);
      }
      bool ok = false;
      if (!connection_->Await(until, &ok)) {
        if (!GaveUp()) return Pull::kNothing;
        break;
      }
      if (!Step(ok)) continue;
      auto fresh = rules_.accept(request_, connection_->response);
      if (!fresh.ok()) {
        End(fresh.status());
        break;
      }
      message = std::move(connection_->response);
      connection_->Read();
      if (*fresh) return Pull::kMessage;
    }
    if (!end_->ok()) return *end_;
    return Pull::kEnd;
  }

  bool interrupted() const override {
    if (end_ || (connection_ != nullptr && connection_->phase != Phase::kStarting)) return false;
    if (connection_ == nullptr && !lost_since_) return false;  // not begun
    return Clock::now() - Alone() > kWorthSaying;
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kStarting, kReading, kFinishing };

  // One operation is under way at any time. The reader lives in memory of the context.
  struct Connection {
    Connection(const StreamRules<Request, Response>& rules, std::shared_ptr<grpc::Channel> of_this,
               const Request& request)
        : channel(std::move(of_this)), reader(rules.prepare(channel, context, request, queue)) {
      reader->StartCall(this);
    }
    ~Connection() {
      context.TryCancel();
      queue.Shutdown();
      void* tag = nullptr;
      bool ok = false;
      while (queue.Next(&tag, &ok)) {
      }
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // False: the operation has not ended by then.
    bool Await(Clock::time_point until, bool* ok) {
      void* tag = nullptr;
      return queue.AsyncNext(&tag, ok, base::TimeOfDayAt(until)) ==
             grpc::CompletionQueue::GOT_EVENT;
    }
    void Read() {
      phase = Phase::kReading;
      reader->Read(&response, this);
    }
    void Finish() {
      phase = Phase::kFinishing;
      reader->Finish(&status, this);
    }

    const std::shared_ptr<grpc::Channel> channel;
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    std::unique_ptr<grpc::ClientAsyncReader<Response>> reader;
    Response response;
    grpc::Status status;
    Phase phase = Phase::kStarting;
    const Clock::time_point begun = Clock::now();
    Clock::time_point started;
  };

  // What follows from the operation that has ended. True: there is a message in `response`.
  bool Step(bool ok) {
    switch (connection_->phase) {
      case Phase::kStarting:
        connection_->started = Clock::now();
        ok ? connection_->Read() : connection_->Finish();
        return false;
      case Phase::kReading:
        if (!ok) {
          connection_->Finish();
          return false;
        }
        lost_since_.reset();
        delay_ = kFirstDelay;
        return true;
      case Phase::kFinishing:
        Finished(connection_->status);
        return false;
    }
    return false;
  }

  // Since when nobody has answered, where that is so.
  Clock::time_point Alone() const { return lost_since_ ? *lost_since_ : connection_->begun; }

  // Nobody has answered for too long.
  bool GaveUp() {
    if (connection_->phase != Phase::kStarting) return false;
    if (Clock::now() - lost_since_.value_or(connection_->begun) < rules_.reconnect_for)
      return false;
    End(StatusOfCall({static_cast<int>(absl::StatusCode::kUnavailable), "no connection", ""},
                     rules_.place));
    return true;
  }

  // Others may listen there; what else is wrong on the way there may pass, like a daemon's absence.
  void Undialled(const absl::Status& error) {
    const Clock::time_point now = Clock::now();
    if (!lost_since_) lost_since_ = now;
    const bool over = now - *lost_since_ >= rules_.reconnect_for;
    if (absl::IsPermissionDenied(error) || over) return End(error);
    Later(now, {});
  }

  void Later(Clock::time_point now, std::chrono::milliseconds pause) {
    connection_.reset();
    next_try_ = now + std::max(delay_, pause);
    delay_ = std::min(2 * delay_, kLongestDelay);
  }

  void Finished(const grpc::Status& status) {
    if (status.ok()) return End(absl::OkStatus());
    const absl::Status error = StatusOfCall(ErrorOf(status), rules_.place);
    // Cancelled: not by us; a daemon that goes down ends its streams so.
    const std::chrono::milliseconds pause = PauseOf(status);
    const bool passing = pause.count() > 0 || absl::IsUnavailable(error) ||
                         absl::IsCancelled(error) || absl::IsAborted(error) ||
                         absl::IsUnknown(error) ||
                         absl::IsDeadlineExceeded(error);  // of a disk there
    const Clock::time_point now = Clock::now();
    // One that stood for a while without a message was a connection nevertheless.
    const bool stood =
        connection_->started != Clock::time_point() && now - connection_->started > kLongestDelay;
    if (!lost_since_ || stood) {
      lost_since_ = now;
      delay_ = kFirstDelay;
    }
    const bool over = rules_.once && !NeverSent(error);
    if (!passing || over || now - *lost_since_ >= rules_.reconnect_for) return End(error);
    Later(now, pause);
  }

  void End(const absl::Status& status) {
    connection_.reset();
    end_ = status;
  }

  Request request_;
  const StreamRules<Request, Response> rules_;
  std::unique_ptr<Connection> connection_;
  std::optional<absl::Status> end_;
  std::optional<Clock::time_point> lost_since_;
  Clock::time_point next_try_;
  std::chrono::milliseconds delay_ = kFirstDelay;
};

}  // namespace trireme::client
