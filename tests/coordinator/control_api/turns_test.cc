// One user's burst on a slow disk: whoever else speaks to the reconciler has his turn in it.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/job_store/forwarding_store.h"
#include "tests/coordinator/control_api/served_store.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::coordinator {
namespace {

// Once it is slow it takes as many commits as it is told to.
class SlowStore : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  absl::Status Commit(Change& change) override {
    {
      const absl::MutexLock lock(&mutex_);
      const auto may = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !slow_ || left_ > 0; };
      ++waiting_;
      mutex_.Await(absl::Condition(&may));
      --waiting_;
      --left_;
    }
    return ForwardingStore::Commit(change);
  }
  void BeSlow() {
    const absl::MutexLock lock(&mutex_);
    slow_ = true;
    left_ = 0;
  }
  void TakeOne() {
    const absl::MutexLock lock(&mutex_);
    left_ = 1;
  }
  void BeFast() {
    const absl::MutexLock lock(&mutex_);
    slow_ = false;
  }
  bool is_at_work() {
    const absl::MutexLock lock(&mutex_);
    return waiting_ > 0;
  }

 private:
  absl::Mutex mutex_;
  bool slow_ ABSL_GUARDED_BY(mutex_) = false;
  int left_ ABSL_GUARDED_BY(mutex_) = 0;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

template <typename Condition>
bool Comes(Condition condition) {
  for (int i = 0; i < 6000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

class Agent {
 public:
  explicit Agent(ServedStore& served) {
    ServedStore::Prepare(context_, "agent");
    stub_ = v1::AgentLink::NewStub(served.ChannelOf("agent"));
    link_ = stub_->Connect(&context_);
    v1::FromAgent word;
    word.mutable_hello()->set_node("n1");
    REQUIRE(link_->Write(word));
    v1::ToAgent answer;
    REQUIRE(link_->Read(&answer));
    CHECK(answer.has_welcome());
  }
  void Report(uint64_t number) {
    v1::FromAgent word;
    word.mutable_report()->set_number(number);
    REQUIRE(link_->Write(word));
  }
  bool HearsTaken(uint64_t number) {
    v1::ToAgent answer;
    while (link_->Read(&answer)) {
      if (answer.taken().number() == number) return true;
    }
    return false;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::AgentLink::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::FromAgent, v1::ToAgent>> link_;
};

// Pauses and resumes job 1, all at once.
class Burst {
 public:
  explicit Burst(ServedStore& served) : stub_(served.StubOf("ann")) {
    for (size_t i = 0; i < kCalls; ++i) {
      Call& call = calls_.emplace_back();
      ServedStore::Prepare(call.context, "ann");
      const auto done = [this](const grpc::Status& status) {
        if (status.ok()) ++answered_;
        ended_.DecrementCount();
      };
      call.pause.set_job_id(1);
      call.resume.set_job_id(1);
      if (i % 2 == 0) {
        stub_->async()->Pause(&call.context, &call.pause, &call.job, done);
      } else {
        stub_->async()->Resume(&call.context, &call.resume, &call.job, done);
      }
    }
  }
  ~Burst() {
    ended_.Wait();
    CHECK(answered_ == kCalls);
  }
  static constexpr size_t kCalls = 40;
  size_t answered() const { return answered_; }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::PauseRequest pause;
    v1::ResumeRequest resume;
    v1::Job job;
  };
  const std::unique_ptr<v1::Control::Stub> stub_;
  std::deque<Call> calls_;
  std::atomic<size_t> answered_{0};
  absl::BlockingCounter ended_{kCalls};
};

}  // namespace

TEST_CASE("turns: an agent's report is acted on amid one user's burst on a slow disk") {
  auto opened = JobStore::Open(":memory:");
  REQUIRE(opened.ok());
  auto made = std::make_unique<SlowStore>(*std::move(opened));
  SlowStore& disk = *made;
  ServedStore served({}, {}, {.name = "store reads"}, std::move(made));
  v1::Job job = served.AddJob(1, "ann");
  job.mutable_status()->set_state(v1::JOB_PENDING);
  job.mutable_status()->set_attempt(0);
  job.mutable_resources()->set_ranks(1000);  // no node holds it
  served.PutJob(job);
  served.Serve();
  Agent agent(served);
  agent.Report(1);
  REQUIRE(agent.HearsTaken(1));

  disk.BeSlow();
  {
    const Burst burst(served);
    const TaskThread& thread = served.reconciler_thread();
    // One is at the disk. A pause of what is paused needs none.
    CHECK(Comes([&] {
      return disk.is_at_work() && burst.answered() + 1 + thread.waiting() == Burst::kCalls;
    }));
    const size_t waiting = thread.waiting();
    served.server().TakeSpoken();
    agent.Report(2);
    CHECK(Comes([&] { return thread.waiting() == waiting + 1; }));
    // Its words are known before they are acted on.
    CHECK(served.server().TakeSpoken() == std::set<std::string>{"n1"});
    CHECK(served.server().TakeSpoken().empty());
    disk.TakeOne();
    CHECK(agent.HearsTaken(2));
    // Not because all is done: the next call waits for the disk.
    CHECK(Comes([&] { return disk.is_at_work(); }));
    disk.BeFast();
  }
}

}  // namespace trireme::coordinator
