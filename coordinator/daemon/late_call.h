// A call on a disk that comes however late, to the thread of whoever has asked: what it throws,
// too, for DiskCalls drops that where it was answered meanwhile, and then nobody would ask again.
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/daemon/while_there.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/process/task_thread.h"

namespace trireme::coordinator {

// `take` gets what `work` returns, also when it is late; `hold_up` gets why it has not come: the
// errors of DiskCalls::Begin, of which after DeadlineExceeded it may still come, and what it has
// thrown, as an InternalError. Both on `asker`, while it is there. Never blocks.
template <typename Work, typename Take, typename HoldUp>
void BeginLate(DiskCalls& calls, const DiskPath& where,
               const std::shared_ptr<WhileThere<TaskThread>>& asker, Work work, Take take,
               HoldUp hold_up) {
  const auto tell = [asker, hold_up = std::move(hold_up)](const absl::Status& why) {
    asker->Do([&](TaskThread& thread) { thread.PostAnswer([hold_up, why] { hold_up(why); }); });
  };
  const absl::Status begun = calls.Begin(
      where,
      [asker, tell, work = std::move(work), take = std::move(take)] {
        try {
          auto outcome = work();
          asker->Do([&](TaskThread& thread) {
            thread.PostAnswer([take, outcome = std::move(outcome)] { take(outcome); });
          });
        } catch (const std::exception& thrown) {  // as for want of memory
          tell(absl::InternalError(thrown.what()));
        }
        return absl::OkStatus();
      },
      [tell](const absl::Status& told) {
        if (!told.ok()) tell(told);
      });
  if (!begun.ok()) tell(begun);
}

}  // namespace trireme::coordinator
