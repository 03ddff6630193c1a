// One message is under way at a time; the next is looked for when it is done, or when there is
// news.
#include "coordinator/control_api/watch_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace trireme::coordinator {
namespace {

constexpr size_t kPage = 256;
constexpr int kPagesALook = 16;

}  // namespace

WatchStream::WatchStream(const ApiRooms& rooms, const v1::WatchRequest& request, Caller caller,
                         StreamSet& streams, std::function<void(LiveStream*)> look_again)
    : PacedStream(streams),
      rooms_(rooms),
      request_(request),
      caller_(std::move(caller)),
      look_again_(std::move(look_again)),
      sequence_(request.after_sequence()) {}

bool WatchStream::Mine(uint64_t job_id) {
  if (request_.job_id() != 0) return job_id == request_.job_id();
  if (job_id == 0 || caller_.role == Role::kAdmin) return true;
  const absl::StatusOr<std::string> owner = rooms_.table.OwnerOf(job_id);
  if (!owner.ok()) Close(owner.status());
  return owner.ok() && *owner == caller_.user;
}

void WatchStream::LookAgain() {
  {
    const absl::MutexLock lock(&mutex_);
    looks_again_ = false;
  }
  Look();
}

bool WatchStream::NextPage() {
  const uint64_t last = rooms_.table.last_sequence();
  auto found = rooms_.table.EventsAfter(sequence_, kPage);
  if (!found) {
    EventQuery query;
    query.after_sequence = sequence_;
    query.job_id = request_.job_id();
    query.limit = kPage;
    auto stored = rooms_.store->Events(query);
    if (!stored.ok()) {
      Close(stored.status());
      return false;
    }
    // Asked after the events were: what has been dropped before then may be missing among them.
    const auto first = rooms_.store->FirstSequence();
    if (const absl::Status whole = NothingDropped(first); !whole.ok()) {
      Close(whole);
      return false;
    }
    found = std::move(*stored);
    if (found->empty()) {
      // None of this job up to there; the table has the rest.
      sequence_ = std::max(sequence_, last);
      found = rooms_.table.EventsAfter(sequence_, kPage);
    }
  }
  if (found) page_.assign(found->begin(), found->end());
  return !page_.empty();
}

// Who has seen nothing yet begins with the oldest that there is.
absl::Status WatchStream::NothingDropped(const absl::StatusOr<uint64_t>& first) const {
  RETURN_IF_ERROR(first.status());
  if (sequence_ == 0 || *first <= sequence_ + 1) return absl::OkStatus();
  return absl::OutOfRangeError(fmt::format(
      "after_sequence: events after {} are kept no more, the oldest is {}; ask for those after {}, "
      "or after 0 for all that there are",
      sequence_, *first, *first - 1));
}

WatchStream::Found WatchStream::NextEvent() {
  int pages = 0;
  while (true) {
    if (page_.empty()) {
      if (pages++ == kPagesALook) return Found::kLater;
      if (!NextPage()) return Found::kNone;
    }
    v1::Event event = std::move(page_.front());
    page_.pop_front();
    sequence_ = event.sequence();
    const bool mine = Mine(event.job_id());
    if (closed()) return Found::kNone;
    if (!mine) continue;
    *response_.mutable_event() = std::move(event);
    return Found::kOne;
  }
}

bool WatchStream::NextProgress() {
  if (progress_.empty()) {
    for (v1::JobProgress& one : rooms_.table.ProgressSince(progress_version_)) {
      if (Mine(one.job_id())) progress_.push_back(std::move(one));
    }
  }
  if (progress_.empty() || closed()) return false;
  *response_.mutable_progress() = std::move(progress_.front());
  progress_.pop_front();
  return true;
}

void WatchStream::SendNext() {
  // Asked before the events are: whoever has ended by then has all of them told.
  bool over = request_.no_follow();
  if (!over && request_.job_id() != 0) {
    const auto status = rooms_.table.StatusOf(request_.job_id());
    if (!status.ok() && !absl::IsNotFound(status.status())) return Close(status.status());
    over = !status.ok() || HasEnded(status->state());
  }
  response_.Clear();
  const Found event = NextEvent();
  if (closed()) return;
  if (event == Found::kLater) {
    if (!looks_again_) look_again_(this);
    looks_again_ = true;
  } else if (event == Found::kOne || NextProgress()) {
    Write();
  } else if (over) {
    Close(absl::OkStatus());
  }
}

}  // namespace trireme::coordinator
