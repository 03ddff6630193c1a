// What ends on a disk that may hang holds up nobody who lets it go.
#include "coordinator/calls/disk_endings.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"

namespace trireme::coordinator {
namespace {

const std::string kDisk = "/tmp/x";

// Its end takes as long as the disk likes.
struct Ending {
  absl::Notification begun, go, over;
  std::thread::id thread;
};

class Thing {
 public:
  explicit Thing(std::shared_ptr<Ending> ending) : ending_(std::move(ending)) {}
  ~Thing() {
    ending_->thread = std::this_thread::get_id();
    ending_->begun.Notify();
    ending_->go.WaitForNotification();
    ending_->over.Notify();
  }
  Thing(const Thing&) = delete;
  Thing& operator=(const Thing&) = delete;

 private:
  const std::shared_ptr<Ending> ending_;
};

// It comes to its end elsewhere, which may take long.
void CheckEnds(DiskEndings& endings, const std::shared_ptr<Ending>& ending) {
  endings.End({kDisk}, std::make_shared<Thing>(ending));
  ending->begun.WaitForNotification();
  CHECK(ending->thread != std::this_thread::get_id());
  CHECK_FALSE(ending->over.HasBeenNotified());
}

}  // namespace

TEST_CASE("endings: a file ends on a thread of its disk, and whoever has let it go does not wait") {
  DiskCalls disks({.name = "disk"});
  DiskEndings endings(disks);
  std::vector<std::shared_ptr<Ending>> ended;
  for (int i = 0; i < 3; ++i) {
    ended.push_back(std::make_shared<Ending>());
    CheckEnds(endings, ended.back());
  }
  // These three took a thread of the disk each, and are its last owners.
  const std::thread::id of_disk = *disks.Wait(
      {kDisk}, [] { return absl::StatusOr<std::thread::id>(std::this_thread::get_id()); });
  for (const auto& ending : ended) {
    CHECK(ending->thread != of_disk);
    ending->go.Notify();
    ending->over.WaitForNotification();
  }
}

TEST_CASE("endings: where no thread of the disk is left, one that nobody waits for ends the rest") {
  const bool stopped = GENERATE(false, true);
  const auto others = std::make_shared<absl::Notification>();
  const auto ending = std::make_shared<Ending>(), next = std::make_shared<Ending>();
  {
    DiskCalls disks({.name = "disk", .threads = 1, .hangs_after = std::chrono::milliseconds(1)});
    DiskEndings endings(disks);
    if (stopped) {
      disks.Stop();
    } else {
      REQUIRE(disks
                  .Begin(
                      {kDisk},
                      [others] {
                        others->WaitForNotification();
                        return absl::OkStatus();
                      },
                      [](const absl::Status&) {})
                  .ok());
      while (disks.hanging() == 0) std::this_thread::yield();
    }
    CheckEnds(endings, ending);
    endings.End({kDisk}, std::make_shared<Thing>(next));
  }
  // By then all of that is gone.
  CHECK_FALSE(next->begun.HasBeenNotified());
  ending->go.Notify();
  next->go.Notify();
  next->over.WaitForNotification();
  CHECK(next->thread == ending->thread);
  others->Notify();
}

TEST_CASE("endings: one that waits when all threads of its disk come to hang ends all the same") {
  const auto others = std::make_shared<absl::Notification>();
  const auto ending = std::make_shared<Ending>();
  DiskCalls disks({.name = "disk", .threads = 1, .hangs_after = std::chrono::milliseconds(200)});
  DiskEndings endings(disks);
  absl::Notification begun;
  REQUIRE(disks
              .Begin(
                  {kDisk},
                  [others, &begun] {
                    begun.Notify();
                    others->WaitForNotification();
                    return absl::OkStatus();
                  },
                  [](const absl::Status&) {})
              .ok());
  begun.WaitForNotification();
  endings.End({kDisk}, std::make_shared<Thing>(ending));
  while (disks.hanging() == 0) std::this_thread::yield();
  others->Notify();
  ending->begun.WaitForNotification();
  CHECK(ending->thread != std::this_thread::get_id());
  ending->go.Notify();
  ending->over.WaitForNotification();
}

}  // namespace trireme::coordinator
