// Streams over a wire of threads: one message under way, every look that matters, an end for all.
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "coordinator/calls/call_progress.h"
#include "coordinator/calls/disk_stream.h"
#include "coordinator/calls/news_thread.h"
#include "coordinator/calls/paced_stream.h"
#include "coordinator/calls/rates.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {
namespace {

constexpr StreamBounds kMany{1000, 1000};

// Threads that carry messages, as gRPC's do: whatever is done is told on one of them.
class Carriers {
 public:
  explicit Carriers(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~Carriers() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    news_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    news_.notify_one();
  }

 private:
  // What is queued is done before the end.
  void Run() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

// What a recipient has got.
struct Recipient {
  std::mutex mutex;
  std::vector<int> got;
  int under_way = 0;
  int most_under_way = 0;
  absl::Status end;
  absl::Notification done;
};

// A wire as gRPC is one: a write is told of when it is done, the end when nothing is under way and
// nobody is in the stream.
class ThreadWire {
 public:
  ThreadWire(Carriers& carriers, Recipient& recipient)
      : carriers_(carriers), recipient_(recipient) {}
  virtual ~ThreadWire() { recipient_.done.Notify(); }
  virtual void OnWriteDone(bool ok) = 0;
  virtual void OnCancel() = 0;
  virtual void OnDone() = 0;

  // The caller leaves.
  void Cancel() {
    {
      const std::lock_guard lock(recipient_.mutex);
      ++reactions_;
    }
    carriers_.Post([this] { React([this] { OnCancel(); }); });
  }

 protected:
  void SendMessage(const int* message) {
    {
      const std::lock_guard lock(recipient_.mutex);
      ++reactions_;
      recipient_.most_under_way = std::max(recipient_.most_under_way, ++recipient_.under_way);
    }
    carriers_.Post([this, message] {
      {
        // The message must stay as it is until its write is done.
        const std::lock_guard lock(recipient_.mutex);
        recipient_.got.push_back(*message);
        --recipient_.under_way;
      }
      React([this] { OnWriteDone(true); });
    });
  }
  void EndCall(const absl::Status& status) {
    const std::lock_guard lock(recipient_.mutex);
    recipient_.end = status;
    ended_ = true;
    if (reactions_ == 0) carriers_.Post([this] { OnDone(); });
  }

 private:
  Carriers& carriers_;
  Recipient& recipient_;
  template <typename Reaction>
  void React(Reaction reaction) {
    reaction();
    bool over = false;
    {
      const std::lock_guard lock(recipient_.mutex);
      over = --reactions_ == 0 && ended_;
    }
    if (over) OnDone();
  }

  // Guarded by recipient_.mutex.
  int reactions_ = 0;  // that have not returned
  bool ended_ = false;
};

// Sends the numbers up to what has been told, one after another.
class Counting : public PacedStream<int, ThreadWire> {
 public:
  Counting(StreamSet& streams, Carriers& carriers, Recipient& recipient,
           const std::atomic<int>& told)
      : PacedStream(streams, carriers, recipient), told_(told) {}

 private:
  void SendNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (next_ >= told_) return;
    response_ = next_++;
    Write();
  }
  const std::atomic<int>& told_;
  int next_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Sends the numbers up to `last`, each from a disk, then ends; a look lasts until `go`.
class FromDisk : public DiskStream<int, int, ThreadWire> {
 public:
  struct Disk {
    int last = 0;
    std::atomic<int> next{0};
    absl::Notification begun, go;
  };
  FromDisk(DiskCalls& disks, StreamSet& streams, Carriers& carriers, Recipient& recipient,
           std::shared_ptr<Disk> disk)
      : DiskStream(disks, streams, carriers, recipient), disk_(std::move(disk)) {}

 private:
  void Ask() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    AskDisk({"/tmp"}, [disk = disk_]() -> absl::StatusOr<int> {
      if (disk->next == 0) disk->begun.Notify();
      disk->go.WaitForNotification();
      return disk->next++;
    });
  }
  void Use(int number) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (number == disk_->last) return Close(absl::OkStatus());
    response_ = number;
    Write();
  }
  const std::shared_ptr<Disk> disk_;
};

// A stream of a set, for what the set does with it.
struct Looker : LiveStream {
  std::function<void()> on_look = [] {};
  int looks = 0;
  int looks_again = 0;
  int ends = 0;
  absl::Status end;
  void Look() override {
    ++looks;
    on_look();
  }
  void LookAgain() override { ++looks_again; }
  void Refuse(const absl::Status& status) override {
    ++ends;
    end = status;
  }
};

}  // namespace

TEST_CASE("streams: whoever reads gets everything once and in order, one message at a time") {
  constexpr int kStreams = 8, kNumbers = 300;
  std::atomic<int> told{0};
  std::vector<std::unique_ptr<Recipient>> recipients;
  Carriers carriers(3);
  StreamSet streams;
  {
    NewsThread news("test", streams);
    for (int i = 0; i < kStreams; ++i) {
      recipients.push_back(std::make_unique<Recipient>());
      auto* stream = new Counting(streams, carriers, *recipients.back(), told);
      REQUIRE(streams.Add(stream, {"ann"}, kMany).ok());
      stream->Look();
    }
    // Meanwhile others come and go, without a word to the news thread: nothing but the set's own
    // mutex is between them and its look.
    std::atomic<bool> all_told{false};
    std::thread other([&] {
      while (!all_told) {
        Looker guest;
        streams.Add(&guest, {"ben"}, kMany).IgnoreError();
        streams.Remove(&guest);
      }
    });
    for (int i = 0; i < kNumbers; ++i) {
      ++told;
      news.Tell();
    }
    all_told = true;
    other.join();
  }
  // The news thread has looked after the last was told; the rest follows by itself. The end cuts
  // off what is still to be sent, so it comes when all is there.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (const auto& recipient : recipients) {
    while (std::chrono::steady_clock::now() < until) {
      const std::lock_guard lock(recipient->mutex);
      if (recipient->got.size() == kNumbers) break;
    }
  }
  streams.End();
  for (const auto& recipient : recipients) {
    REQUIRE(recipient->done.WaitForNotificationWithTimeout(absl::Seconds(60)));
    const std::lock_guard lock(recipient->mutex);
    REQUIRE(recipient->got.size() == kNumbers);
    for (int i = 0; i < kNumbers; ++i) CHECK(recipient->got[static_cast<size_t>(i)] == i);
    CHECK(recipient->most_under_way == 1);
    CHECK(absl::IsUnavailable(recipient->end));
  }
}

TEST_CASE("streams: who leaves in the midst of it is forgotten") {
  std::atomic<int> told{1000000};
  std::vector<std::unique_ptr<Recipient>> recipients;
  StreamSet streams;
  {
    Carriers carriers(3);
    std::vector<Counting*> open;
    for (int i = 0; i < 6; ++i) {
      recipients.push_back(std::make_unique<Recipient>());
      open.push_back(new Counting(streams, carriers, *recipients.back(), told));
      REQUIRE(streams.Add(open.back(), {i % 2 == 0 ? "ann" : "ben"}, {6, 3}).ok());
      open.back()->Look();
    }
    CHECK(absl::IsResourceExhausted(streams.Add(open[0], {"cid"}, {6, 3})));
    for (Counting* stream : open) stream->Cancel();
    for (const auto& recipient : recipients) {
      REQUIRE(recipient->done.WaitForNotificationWithTimeout(absl::Seconds(60)));
    }
    // There is room for as many again.
    std::vector<Looker> others(6);
    for (size_t i = 0; i < others.size(); ++i) {
      CHECK(streams.Add(&others[i], {i % 2 == 0 ? "ann" : "ben"}, {6, 3}).ok());
    }
    for (Looker& other : others) streams.Remove(&other);
  }
  for (const auto& recipient : recipients) CHECK(absl::IsCancelled(recipient->end));
}

TEST_CASE("streams: bounds are of each user and of all") {
  StreamSet streams;
  std::vector<Looker> all(5);
  const StreamBounds bounds{3, 2};
  CHECK(streams.Add(&all[0], {"ann"}, bounds).ok());
  CHECK(streams.Add(&all[1], {"ann"}, bounds).ok());
  const absl::Status own = streams.Add(&all[2], {"ann"}, bounds);
  CHECK(absl::IsResourceExhausted(own));
  // Nothing frees one's own streams but oneself: there is no time after which to ask again.
  CHECK(RetryAfterMs(own) == 0);
  CHECK(streams.Add(&all[2], {"ben"}, bounds).ok());
  const absl::Status full = streams.Add(&all[3], {"cid"}, bounds);
  CHECK(absl::IsResourceExhausted(full));
  CHECK(RetryAfterMs(full) == kFullForMs);
  streams.Remove(&all[0]);
  streams.Remove(&all[0]);  // it has gone already
  CHECK(streams.Add(&all[3], {"ann"}, bounds).ok());
  CHECK(absl::IsResourceExhausted(streams.Add(&all[0], {"ann"}, bounds)));
  streams.LookAll();
  streams.LookAgain(&all[1]);
  streams.LookAgain(&all[0]);  // is not there
  streams.End();
  for (size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    CHECK(all[i].looks == (i == 0 ? 0 : 1));
    CHECK(all[i].looks_again == (i == 1 ? 1 : 0));
    CHECK(all[i].ends == (i == 0 ? 0 : 1));
    CHECK(absl::IsUnavailable(all[i].end) == (i != 0));
  }
  CHECK(absl::IsUnavailable(streams.Add(&all[4], {"dan"}, bounds)));
}

TEST_CASE("streams: what a disk holds comes in order, one look at a time") {
  Recipient recipient;
  const auto disk = std::make_shared<FromDisk::Disk>();
  disk->last = 100;
  Carriers carriers(2);
  StreamSet streams;
  DiskCalls disks({.name = "disk"});
  auto* stream = new FromDisk(disks, streams, carriers, recipient, disk);
  REQUIRE(streams.Add(stream, {"ann"}, kMany).ok());
  stream->Look();
  disk->begun.WaitForNotification();
  // Looks that come meanwhile ask for no second one.
  for (int i = 0; i < 3; ++i) streams.LookAll();
  disk->go.Notify();
  recipient.done.WaitForNotification();
  CHECK(recipient.end.ok());
  CHECK(recipient.most_under_way == 1);
  REQUIRE(recipient.got.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(recipient.got[static_cast<size_t>(i)] == i);
}

TEST_CASE("streams: whose caller leaves during a look is there until the look is answered") {
  Recipient left, stopped;
  const auto disk = std::make_shared<FromDisk::Disk>();
  const auto other = std::make_shared<FromDisk::Disk>();
  Carriers carriers(2);
  StreamSet streams;
  DiskCalls disks({.name = "disk"});
  auto* stream = new FromDisk(disks, streams, carriers, left, disk);
  REQUIRE(streams.Add(stream, {"ann"}, kMany).ok());
  stream->Look();
  disk->begun.WaitForNotification();
  stream->Cancel();
  CHECK_FALSE(left.done.WaitForNotificationWithTimeout(absl::Milliseconds(20)));
  disk->go.Notify();
  left.done.WaitForNotification();
  CHECK(absl::IsCancelled(left.end));
  CHECK(left.got.empty());

  auto* second = new FromDisk(disks, streams, carriers, stopped, other);
  REQUIRE(streams.Add(second, {"ann"}, kMany).ok());
  second->Look();
  other->begun.WaitForNotification();
  disks.Stop();
  stopped.done.WaitForNotification();
  CHECK(absl::IsUnavailable(stopped.end));
  other->go.Notify();
}

TEST_CASE("streams: what is told while they look is looked at once more") {
  StreamSet streams;
  Looker looker;
  absl::Notification begun, go_on;
  looker.on_look = [&] {
    if (looker.looks > 1) return;
    begun.Notify();
    go_on.WaitForNotification();
  };
  REQUIRE(streams.Add(&looker, {"ann"}, kMany).ok());
  {
    NewsThread news("test", streams);
    news.Tell();
    begun.WaitForNotification();
    for (int i = 0; i < 5; ++i) news.Tell();
    go_on.Notify();
  }
  // The first look, and one for all that was told during it.
  CHECK(looker.looks == 2);
  streams.Remove(&looker);
}

TEST_CASE("streams: an export's newest news is taken once and its end after the last") {
  CallProgress<v1::ExportResponse> state;
  std::atomic<int> taken{0};
  uint64_t told = 0;
  // It goes on until enough has been taken beside it.
  std::thread exporter([&] {
    v1::ExportResponse response;
    while (taken < 50 && state.StillWanted().ok()) {
      response.set_bytes_done(++told);
      state.Tell(response);
    }
    response.set_done(true);
    state.Tell(response);
    state.End(absl::OkStatus());
  });
  uint64_t last = 0;
  bool done = false;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < until) {
    const auto ended = state.ended();
    const auto news = state.Take();
    if (news) {
      ++taken;
      CHECK(news->bytes_done() + (news->done() ? 1 : 0) > last);
      last = news->bytes_done();
      done = news->done();
    } else if (ended) {
      break;
    }
  }
  state.CallerLeft();
  exporter.join();
  CHECK(done);
  CHECK(last == told);
}

TEST_CASE("streams: a user's bucket is one for all threads") {
  CallRates rates({0, 0}, {0.001, 500});
  std::atomic<int> let_in{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 250; ++call) {
        if (rates.Take("ann", CallKind::kOther, 1).ok()) ++let_in;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(let_in == 500);
}

}  // namespace trireme::coordinator
