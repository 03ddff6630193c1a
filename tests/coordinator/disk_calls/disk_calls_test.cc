// File systems that hang: who waits for them, who does not, and for how long.
#include "coordinator/disk_calls/disk_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/steady_wait.h"
#include "tests/time_of_day.h"

namespace trireme::coordinator {
namespace {

using std::chrono::milliseconds;

// Two file systems that every Linux has.
const std::string kDisk = "/tmp/x";
const std::string kOther = "/dev/shm/x";

DiskCallsOptions Options(size_t threads = 2, milliseconds deadline = milliseconds(60000)) {
  DiskCallsOptions options;
  options.name = "test";
  options.threads = threads;
  options.deadline = deadline;
  options.hangs_after = milliseconds(20);
  return options;
}

// An open of it blocks, as on a disk that does not answer, until Answer.
class HungFile {
 public:
  HungFile() {
    char name[] = "/tmp/trireme-hung-XXXXXX";
    folder_ = mkdtemp(name);
    REQUIRE(mkfifo(path().c_str(), 0600) == 0);
  }
  ~HungFile() {
    Answer();
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/log"; }
  void Answer() {
    if (writer_ < 0) writer_ = open(path().c_str(), O_RDWR | O_CLOEXEC);
  }

 private:
  std::string folder_;
  int writer_ = -1;
};

absl::StatusOr<int> OpenBlocking(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  close(fd);
  return 7;
}

// What a call came to.
struct Outcome {
  base::SteadyEvent there;
  absl::Status status;
  std::atomic<int> answers{0};
  const absl::Status& Wait() {
    REQUIRE(there.WaitFor(std::chrono::seconds(60)));
    return status;
  }
};

template <typename Call>
std::shared_ptr<Outcome> Ask(DiskCalls& calls, const DiskPath& where, Call call) {
  auto outcome = std::make_shared<Outcome>();
  const absl::Status begun = calls.Begin(where, std::move(call), [outcome](const auto& result) {
    ++outcome->answers;
    if constexpr (std::is_same_v<std::decay_t<decltype(result)>, absl::Status>) {
      outcome->status = result;
    } else {
      outcome->status = result.status();
    }
    outcome->there.Notify();
  });
  INFO(begun);
  REQUIRE(begun.ok());
  return outcome;
}

// Long enough for a busy machine to begin the call: one that has not begun by then is answered too,
// and no thread hangs.
constexpr milliseconds kShort(500);

std::shared_ptr<Outcome> AskHung(DiskCalls& calls, const HungFile& file, milliseconds deadline) {
  return Ask(calls, {file.path(), "", deadline},
             [path = file.path()] { return OpenBlocking(path); });
}

bool Says(const absl::Status& status, const std::string& words) {
  return status.message().find(words) != absl::string_view::npos;
}

// Its thread hangs a moment after whoever asked has been answered.
void AwaitHanging(const DiskCalls& calls, size_t count) {
  for (int i = 0; i < 6000 && calls.hanging() != count; ++i) absl::SleepFor(absl::Milliseconds(10));
  CHECK(calls.hanging() == count);
}

}  // namespace

TEST_CASE("a call has the result of its disk") {
  DiskCalls calls(Options());
  const auto seven = calls.Wait({kDisk}, []() -> absl::StatusOr<int> { return 7; });
  REQUIRE(seven.ok());
  CHECK(*seven == 7);
  CHECK(absl::IsNotFound(calls.Wait({kDisk}, [] { return absl::NotFoundError("none"); })));
  CHECK(calls.waiting() == 0);
}

TEST_CASE("a call that hangs is answered at its deadline, by path and mount") {
  HungFile file;
  DiskCalls calls(Options());
  const auto outcome = AskHung(calls, file, kShort);
  CHECK(absl::IsDeadlineExceeded(outcome->Wait()));
  CHECK(Says(outcome->status, file.path()));
  CHECK(Says(outcome->status, "the file system at /"));
  AwaitHanging(calls, 1);
  // There is a thread left.
  CHECK(calls.Wait({kDisk}, [] { return absl::OkStatus(); }).ok());
}

TEST_CASE("a call is answered at its deadline also when the time of day is set back") {
  HungFile file;
  const test::TimeOfDayAhead ahead(3600);
  DiskCalls calls(Options());
  CHECK(absl::IsDeadlineExceeded(AskHung(calls, file, kShort)->Wait()));
  AwaitHanging(calls, 1);
}

TEST_CASE("a thread hangs long before the deadline of its call, which is answered at it") {
  HungFile file;
  DiskCalls calls(Options(1));
  const auto hung = AskHung(calls, file, milliseconds(3600000));
  AwaitHanging(calls, 1);
  CHECK(hung->answers == 0);
  const auto refused = calls.Wait({kDisk}, [] { return absl::OkStatus(); });
  CHECK(absl::IsUnavailable(refused));
  file.Answer();
  CHECK(hung->Wait().ok());
  AwaitHanging(calls, 0);
  HungFile other;
  const auto late = AskHung(calls, other, milliseconds(200));
  AwaitHanging(calls, 1);
  CHECK(absl::IsDeadlineExceeded(late->Wait()));
  other.Answer();
  AwaitHanging(calls, 0);
}

TEST_CASE("when all threads of a file system hang its calls fail at once, and others' do not") {
  HungFile file;
  DiskCalls calls(Options(2));
  const auto first = AskHung(calls, file, kShort);
  // Behind both, and by itself it would wait for an hour.
  const auto second = AskHung(calls, file, 2 * kShort);
  const auto behind =
      Ask(calls, {file.path(), "", milliseconds(3600000)}, [] { return absl::OkStatus(); });
  CHECK(absl::IsDeadlineExceeded(first->Wait()));
  CHECK(absl::IsDeadlineExceeded(second->Wait()));
  const absl::Status waited = behind->Wait();
  // It ran where the second thread was late to begin, and else is not kept waiting.
  CHECK((waited.ok() || absl::IsUnavailable(waited)));
  AwaitHanging(calls, 2);
  const absl::Status refused = calls.Wait({kDisk}, [] { return absl::OkStatus(); });
  CHECK(absl::IsUnavailable(refused));
  CHECK(Says(refused, kDisk));
  CHECK(Says(refused, "2 calls on the file system at /"));
  CHECK(calls.Wait({kOther}, [] { return absl::OkStatus(); }).ok());

  SECTION("and the file system is asked again when it answers") {
    file.Answer();
    absl::Status after = absl::UnavailableError("");
    for (int i = 0; i < 6000 && !after.ok(); ++i) {
      after = calls.Wait({kDisk}, [] { return absl::OkStatus(); });
      if (!after.ok()) absl::SleepFor(absl::Milliseconds(10));
    }
    CHECK(after.ok());
  }
  // Who was answered once is not again.
  calls.Stop();
  CHECK(first->answers == 1);
  CHECK(second->answers == 1);
}

TEST_CASE("owners take turns and none fills the queue of a file system") {
  DiskCallsOptions options = Options(1);
  options.most_waiting = 3;
  options.most_of_owner = 2;
  DiskCalls calls(options);
  absl::Notification go, begun;
  const auto held = Ask(calls, {kDisk}, [&] {
    begun.Notify();
    go.WaitForNotification();
    return absl::OkStatus();
  });
  begun.WaitForNotification();
  std::vector<std::string> order;  // of one thread
  std::vector<std::shared_ptr<Outcome>> all;
  const auto ask = [&](const std::string& owner) {
    all.push_back(Ask(calls, {kDisk, owner}, [&order, owner] {
      order.push_back(owner);
      return absl::OkStatus();
    }));
  };
  const auto refused = [&](const std::string& owner) {
    return calls.Begin(
        {kDisk, owner}, [] { return absl::OkStatus(); }, [](absl::Status) {});
  };
  ask("ann");
  ask("ann");
  CHECK(absl::IsResourceExhausted(refused("ann")));
  ask("bob");
  CHECK(absl::IsResourceExhausted(refused("cid")));
  CHECK(calls.waiting() == 3);
  go.Notify();
  for (const auto& outcome : all) CHECK(outcome->Wait().ok());
  CHECK(order == std::vector<std::string>{"ann", "bob", "ann"});
}

TEST_CASE("the end does not wait for a call that hangs, and answers it") {
  HungFile file;
  const auto owned = std::make_shared<std::string>("still there");
  std::shared_ptr<Outcome> hung;
  std::atomic<bool> came_back{false};
  absl::Notification begun;
  {
    DiskCalls calls(Options(1));
    hung = Ask(calls, {file.path()}, [path = file.path(), mine = owned, &came_back, &begun] {
      begun.Notify();
      const auto got = OpenBlocking(path);
      came_back = *mine == "still there";
      return got;
    });
    begun.WaitForNotification();
  }
  CHECK(absl::IsUnavailable(hung->Wait()));
  CHECK(Says(hung->status, "stopping"));
  // Its thread is held still, with what it owns; it comes to its end after all.
  CHECK_FALSE(came_back);
  file.Answer();
  for (int i = 0; i < 6000 && !came_back; ++i) absl::SleepFor(absl::Milliseconds(10));
  CHECK(came_back);
  CHECK(hung->answers == 1);
}

TEST_CASE(
    "what a call owns that nobody waits for any more goes where it may hang, not under a lock") {
  DiskCallsOptions options = Options(1);
  options.hangs_after = milliseconds(60000);
  DiskCalls calls(options);
  absl::Notification release;
  const auto held = Ask(calls, {kDisk}, [&release] {
    release.WaitForNotification();
    return absl::OkStatus();
  });
  std::atomic<bool> gone{false};
  std::thread::id where;
  auto owned = std::shared_ptr<int>(new int(7), [&](int* number) {
    delete number;
    where = std::this_thread::get_id();
    (void)calls.waiting();  // takes the lock
    gone = true;
  });
  DiskPath late{kDisk};
  late.deadline = milliseconds(20);
  const auto expired = Ask(calls, late, [owned = std::move(owned)] {
    FAIL_CHECK("nobody wants it");
    return absl::OkStatus();
  });
  CHECK(absl::IsDeadlineExceeded(expired->Wait()));
  CHECK_FALSE(gone);
  release.Notify();
  CHECK(held->Wait().ok());
  for (int i = 0; i < 6000 && !gone; ++i) absl::SleepFor(absl::Milliseconds(10));
  CHECK(gone);
  CHECK(where != std::this_thread::get_id());
}

TEST_CASE("a disk that is slow under many calls does not hang") {
  DiskCallsOptions options = Options(1);
  options.hangs_after = milliseconds(60000);
  DiskCalls calls(options);
  DiskPath hurried{kDisk};
  hurried.deadline = milliseconds(100);
  const auto slow = [] {
    absl::SleepFor(absl::Milliseconds(80));
    return absl::OkStatus();
  };
  std::vector<std::shared_ptr<Outcome>> late;
  for (int i = 0; i < 5; ++i) late.push_back(Ask(calls, hurried, slow));
  const auto patient = Ask(calls, {kDisk}, [] { return absl::OkStatus(); });
  for (const auto& one : late) one->Wait();
  CHECK(absl::IsDeadlineExceeded(late.back()->status));
  CHECK(calls.hanging() == 0);
  CHECK(patient->Wait().ok());
}

TEST_CASE("what a call throws is its error") {
  DiskCalls calls(Options());
  const absl::Status thrown = calls.Wait({kDisk}, []() -> absl::Status { throw std::bad_alloc(); });
  CHECK(absl::IsInternal(thrown));
}

TEST_CASE("nothing is begun after the end") {
  DiskCalls calls(Options());
  calls.Stop();
  CHECK(absl::IsUnavailable(calls.Wait({kDisk}, [] { return absl::OkStatus(); })));
}

TEST_CASE("calls from many threads are each answered once") {
  DiskCalls calls(Options(4));
  std::atomic<int> answers{0}, right{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 200; ++i) {
        const int number = caller * 1000 + i;
        const auto got = calls.Wait({i % 2 == 0 ? kDisk : kOther},
                                    [number]() -> absl::StatusOr<int> { return number; });
        ++answers;
        if (got.ok() && *got == number) ++right;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(answers == 800);
  CHECK(right == 800);
}

TEST_CASE("a call of two file systems, one of which hangs, takes no thread of the other's") {
  HungFile file;
  DiskCalls calls(Options(1));
  DiskPath both{kOther, "", kShort};
  both.also = {file.path(), kDisk};
  const auto hung = Ask(calls, both, [path = file.path()] { return OpenBlocking(path); });
  CHECK(absl::IsDeadlineExceeded(hung->Wait()));
  AwaitHanging(calls, 1);
  CHECK(calls.Wait({kOther}, [] { return absl::OkStatus(); }).ok());
  CHECK(calls.Wait({kDisk}, [] { return absl::OkStatus(); }).ok());
  // In whatever order they are named.
  const absl::Status refused =
      calls.Wait({kDisk, "", milliseconds(50), {kOther}}, [] { return absl::OkStatus(); });
  CHECK(absl::IsUnavailable(refused));
  CHECK(Says(refused, " or the file system at "));
}

TEST_CASE("a call that gets on has its deadline for each step, and those behind it have time") {
  DiskCallsOptions options = Options(1);
  options.hangs_after = milliseconds(2000);  // of a step as well
  DiskCalls calls(options);
  DiskPath steps{kDisk, "", milliseconds(2000)};
  steps.pulse = std::make_shared<DiskPulse>();
  const auto slow = Ask(calls, steps, [pulse = steps.pulse] {
    for (int i = 0; i < 5; ++i) {
      absl::SleepFor(absl::Milliseconds(500));
      if (!pulse->Beat()) return absl::CancelledError("given up");
    }
    return absl::OkStatus();
  });
  DiskPath behind{kDisk, "", milliseconds(1000)};
  behind.pulse = std::make_shared<DiskPulse>();
  const auto waits = Ask(calls, behind, [] { return absl::OkStatus(); });
  CHECK(slow->Wait().ok());
  CHECK(waits->Wait().ok());
}

TEST_CASE("a step that hangs is named, and the call that comes back learns that it was given up") {
  HungFile file;
  const auto all = std::make_shared<std::atomic<size_t>>(0);
  DiskCallsOptions options = Options(1);
  options.hanging_of_all = all;
  DiskCalls calls(options);
  DiskPath where{kOther, "", kShort};
  where.also = {file.path()};
  where.pulse = std::make_shared<DiskPulse>();
  const auto came_back = std::make_shared<absl::Notification>();
  const auto wanted = std::make_shared<std::atomic<bool>>(true);
  const auto hung =
      Ask(calls, where, [=, path = file.path(), pulse = where.pulse]() -> absl::StatusOr<int> {
        pulse->BeatAt(path);
        auto opened = OpenBlocking(path);
        *wanted = pulse->Beat();
        came_back->Notify();
        return opened;
      });
  CHECK(absl::IsDeadlineExceeded(hung->Wait()));
  CHECK(Says(hung->status, file.path() + ": the file system at "));
  CHECK_FALSE(Says(hung->status, " or the file system"));
  AwaitHanging(calls, 1);
  CHECK(*all == 1);
  file.Answer();
  REQUIRE(came_back->WaitForNotificationWithTimeout(absl::Seconds(60)));
  CHECK_FALSE(*wanted);
  AwaitHanging(calls, 0);
  CHECK(*all == 0);
}

// Opens the file that hangs, in a lane of it and `others`, as a step that it names.
std::shared_ptr<Outcome> AskAmong(DiskCalls& calls, const HungFile& file,
                                  std::vector<std::string> others, bool names_it = true) {
  DiskPath where{file.path(), "", milliseconds(3600000), std::move(others)};
  where.pulse = std::make_shared<DiskPulse>();
  return Ask(calls, where, [path = file.path(), pulse = where.pulse, names_it] {
    if (names_it) pulse->BeatAt(path);
    return OpenBlocking(path);
  });
}

TEST_CASE("one that hangs has so many threads, in however many sets it is named") {
  HungFile file;
  DiskCallsOptions options = Options(1);
  options.hangs_after = milliseconds(1000);
  DiskCalls calls(options);
  const std::vector<std::string> all = {kOther, "/proc/x", "/sys/x"};
  std::vector<std::shared_ptr<Outcome>> asked;
  for (int set = 7; set >= 0; --set) {  // /sys is in the first four
    std::vector<std::string> others;
    for (int i = 0; i < 3; ++i) {
      if ((set >> i & 1) != 0) others.push_back(all[static_cast<size_t>(i)]);
    }
    asked.push_back(AskAmong(calls, file, others));
  }
  // Of file systems that all wait with the one that hangs, until it is known that they do not.
  const auto healthy = Ask(calls, {kOther, "", milliseconds(60000), {all[1], all[2]}},
                           [] { return absl::OkStatus(); });
  CHECK(calls.Wait({kOther}, [] { return absl::OkStatus(); }).ok());
  CHECK(healthy->Wait().ok());
  AwaitHanging(calls, 5);
  // What waits, and what is asked for from now on, whatever else that asks for.
  int refused = 0;
  for (const auto& each : asked) {
    if (!each->there.HasBeenNotified()) continue;
    ++refused;
    CHECK(absl::IsUnavailable(each->Wait()));
  }
  CHECK(refused == 3);
  for (const std::string& also : {kDisk, kOther, std::string("/dev/x")}) {
    const absl::Status late =
        calls.Wait({kDisk, "", milliseconds(0), {also}}, [] { return absl::OkStatus(); });
    CHECK(absl::IsUnavailable(late));
    CHECK(Says(late, "calls on the file system at /"));
    CHECK_FALSE(Says(late, " or the file system"));
  }
  for (const std::string& other : all) {
    CHECK(calls.Wait({other}, [] { return absl::OkStatus(); }).ok());
    CHECK(
        calls.Wait({other, "", milliseconds(0), {"/dev/x"}}, [] { return absl::OkStatus(); }).ok());
  }
  file.Answer();
  AwaitHanging(calls, 0);
  CHECK(calls.Wait({kDisk, "", milliseconds(0), {kOther}}, [] { return absl::OkStatus(); }).ok());
  for (int i = 0; i < 6000 && calls.lanes() > 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  CHECK(calls.lanes() == 0);
}

TEST_CASE("of a set that hangs at no step that it names no file system is blamed alone") {
  HungFile file;
  DiskCalls calls(Options(1));
  std::vector<std::shared_ptr<Outcome>> asked;
  for (const char* other : {"/dev/shm/x", "/proc/x", "/sys/x", "/dev/x"}) {
    asked.push_back(AskAmong(calls, file, {other}, /*names_it=*/false));
  }
  AwaitHanging(calls, 4);
  // It is in all of them.
  const absl::Status late = calls.Wait({kDisk, "", milliseconds(0), {"/dev/shm/x", "/proc/x"}},
                                       [] { return absl::OkStatus(); });
  CHECK(absl::IsUnavailable(late));
  CHECK(Says(late, "4 calls on the file system at /"));
  CHECK_FALSE(Says(late, " or the file system"));
  for (const std::string& alone : {kDisk, kOther}) {
    CHECK(calls.Wait({alone}, [] { return absl::OkStatus(); }).ok());
  }
  CHECK(
      calls.Wait({kOther, "", milliseconds(0), {"/proc/x"}}, [] { return absl::OkStatus(); }).ok());
}

TEST_CASE("a call that hangs at one step after another counts where it hangs now") {
  HungFile first, second;
  DiskCalls calls(Options(1));
  const bool answered = GENERATE(false, true);  // at its deadline, while it hangs
  DiskPath where{first.path(), "", milliseconds(answered ? 10 : 3600000), {kOther}};
  where.pulse = std::make_shared<DiskPulse>();
  const auto hung =
      Ask(calls, where, [one = first.path(), other = second.path(), pulse = where.pulse] {
        pulse->BeatAt(one);
        (void)OpenBlocking(one);
        pulse->BeatAt(kOther);
        return OpenBlocking(other);
      });
  const auto await_refused = [&](const std::string& path, bool wanted) {
    bool refused = !wanted;
    for (int i = 0; i < 6000 && refused != wanted; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
      refused = absl::IsUnavailable(calls.Wait({path}, [] { return absl::OkStatus(); }));
    }
    CHECK(refused == wanted);
  };
  await_refused(kDisk, true);
  await_refused(kOther, false);
  first.Answer();
  await_refused(kOther, true);
  await_refused(kDisk, false);
  second.Answer();
  CHECK(hung->Wait().ok() == !answered);
  await_refused(kOther, false);
}

TEST_CASE("when all threads hang, also those of others are not kept waiting") {
  HungFile file;
  DiskCallsOptions options = Options(2);
  options.most_threads = 1;
  options.hangs_after = milliseconds(200);
  DiskCalls calls(options);
  const auto hung = AskHung(calls, file, milliseconds(3600000));
  DiskPath behind{kOther};
  behind.pulse = std::make_shared<DiskPulse>();  // waits for as long as others go on
  const auto waits = Ask(calls, behind, [] { return absl::OkStatus(); });
  CHECK(absl::IsUnavailable(waits->Wait()));
  CHECK(Says(waits->status, kOther + ": not asked for, because 1 threads hang"));
  CHECK(absl::IsUnavailable(calls.Wait({kOther}, [] { return absl::OkStatus(); })));
  file.Answer();
  CHECK(hung->Wait().ok());
  AwaitHanging(calls, 0);
  CHECK(calls.Wait({kOther}, [] { return absl::OkStatus(); }).ok());
}

}  // namespace trireme::coordinator
