// One message is under way at a time; the next is looked for when it is done, or when there is
// news, in the table first.
#include "coordinator/control_api/watch_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kPage = 256;
constexpr int kPagesALook = 16;
constexpr std::string_view kNoEvents = "events cannot be read";

}  // namespace

WatchStream::WatchStream(const ApiRooms& rooms, const v1::WatchRequest& request, Caller caller,
                         StreamSet& streams, std::function<void(LiveStream*)> look_again)
    : DiskStream(rooms.reads.disks(), streams),
      rooms_(rooms),
      request_(request),
      caller_(std::move(caller)),
      look_again_(std::move(look_again)),
      sequence_(request.after_sequence()) {}

absl::StatusOr<bool> WatchStream::Mine(uint64_t job_id) const {
  if (request_.job_id() != 0) return job_id == request_.job_id();
  if (job_id == 0 || caller_.role == Role::kAdmin) return true;
  if (const auto told = owners_.find(job_id); told != owners_.end()) {
    return told->second == caller_.user;
  }
  ASSIGN_OR_RETURN(const std::string owner, rooms_.table.OwnerOf(job_id));
  return owner == caller_.user;
}

void WatchStream::AskForPage(uint64_t up_to) {
  EventQuery query;
  query.after_sequence = sequence_;
  query.job_id = request_.job_id();
  query.limit = kPage;
  AskDisk(rooms_.reads.Where(caller_.user),
          [store = rooms_.store, query, up_to]() -> absl::StatusOr<WatchPiece> {
            WatchPiece piece;
            piece.up_to = up_to;
            absl::StatusOr<std::vector<v1::Event>> events = store->Events(query);
            RETURN_IF_ERROR(OfStore(events.status(), kNoEvents));
            piece.events = *std::move(events);
            // Asked after the events were: what has been dropped before then may be missing.
            const absl::StatusOr<uint64_t> first = store->FirstSequence();
            RETURN_IF_ERROR(OfStore(first.status(), kNoEvents));
            piece.first = *first;
            return piece;
          });
}

void WatchStream::AskForOwners() {
  WatchPiece asked;
  asked.owners[page_.front().job_id()];
  for (const v1::Event& event : page_) {
    if (NeedsStore(Mine(event.job_id()).status())) asked.owners[event.job_id()];
  }
  AskDisk(rooms_.reads.Where(caller_.user),
          [store = rooms_.store, asked]() -> absl::StatusOr<WatchPiece> {
            WatchPiece piece = asked;
            for (auto& [job_id, owner] : piece.owners) {
              const absl::StatusOr<std::optional<v1::Job>> job = store->FindJob(job_id);
              RETURN_IF_ERROR(OfStore(job.status(), kNoEvents));
              if (*job) owner = (*job)->owner();
            }
            return piece;
          });
}

void WatchStream::Use(WatchPiece piece) {
  if (!piece.owners.empty()) {
    owners_ = std::move(piece.owners);
    return GoOn();
  }
  if (const absl::Status whole = NothingDropped(piece.first); !whole.ok()) return Close(whole);
  // None of this job up to there; the table has the rest.
  if (piece.events.empty()) sequence_ = std::max(sequence_, piece.up_to);
  page_.assign(piece.events.begin(), piece.events.end());
  GoOn();
}

// Who has seen nothing yet begins with the oldest that there is.
absl::Status WatchStream::NothingDropped(uint64_t first) const {
  if (sequence_ == 0 || first <= sequence_ + 1) return absl::OkStatus();
  return absl::OutOfRangeError(fmt::format(
      "after_sequence: events after {} are kept no more, the oldest is {}; ask for those after {}, "
      "or after 0 for all that there are",
      sequence_, first, first - 1));
}

bool WatchStream::NextPage(int page) {
  if (page == kPagesALook) {
    Wait();
    look_again_(this);
    return false;
  }
  owners_.clear();
  const uint64_t last = rooms_.table.last_sequence();
  const auto here = rooms_.table.EventsAfter(sequence_, kPage);
  if (here) {
    page_.assign(here->begin(), here->end());
  } else {
    AskForPage(last);
  }
  return here.has_value();
}

bool WatchStream::NextProgress() {
  if (progress_.empty()) {
    for (v1::JobProgress& one : rooms_.table.ProgressSince(progress_version_)) {
      // Of a job that is here no more it is of no use.
      if (Mine(one.job_id()).value_or(false)) progress_.push_back(std::move(one));
    }
  }
  if (progress_.empty()) return false;
  *response_.mutable_progress() = std::move(progress_.front());
  progress_.pop_front();
  return true;
}

void WatchStream::GoOn() {
  response_.Clear();
  for (int pages = 0;;) {
    if (page_.empty() && !NextPage(pages++)) return;
    if (page_.empty()) break;
    v1::Event& event = page_.front();
    const absl::StatusOr<bool> mine = Mine(event.job_id());
    if (!mine.ok()) return AskForOwners();
    sequence_ = event.sequence();
    if (*mine) *response_.mutable_event() = std::move(event);
    page_.pop_front();
    if (*mine) return Write();
  }
  if (NextProgress()) return Write();
  if (over_) Close(absl::OkStatus());
}

void WatchStream::Ask() {
  // Asked before the events are: whoever has ended by then has all of them told.
  over_ = request_.no_follow();
  if (!over_ && request_.job_id() != 0) {
    const auto status = rooms_.table.StatusOf(request_.job_id());
    over_ = !status || HasEnded(status->state());
  }
  GoOn();
}

}  // namespace trireme::coordinator
