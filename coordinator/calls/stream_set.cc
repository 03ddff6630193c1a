// A stream is called under the set's mutex, so that it is there for as long as the call lasts.
#include "coordinator/calls/stream_set.h"

#include "absl/strings/str_cat.h"
#include "coordinator/calls/rates.h"

namespace trireme::coordinator {
namespace {

absl::Status Stopping() { return absl::UnavailableError("the daemon is stopping; ask again"); }

}  // namespace

absl::Status StreamSet::Add(LiveStream* stream, const Caller& caller, const StreamBounds& bounds) {
  const std::string& user = caller.user;
  const absl::MutexLock lock(&mutex_);
  if (ended_) return Stopping();
  const auto open = users_.find(user);
  const size_t of_user = open == users_.end() ? 0 : open->second;
  if (of_user >= bounds.of_user) {
    return absl::ResourceExhaustedError(absl::StrCat(of_user, " streams of this kind are open for ",
                                                     user, " and no more are allowed; close some"));
  }
  if (streams_.size() >= bounds.in_all) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(absl::StrCat("too many streams of this kind are open (",
                                                  streams_.size(), "); try again later")),
        kFullForMs);
  }
  ++users_[user];
  streams_[stream] = caller;
  return absl::OkStatus();
}

void StreamSet::Remove(LiveStream* stream) {
  const absl::MutexLock lock(&mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  if (--users_[found->second.user] == 0) users_.erase(found->second.user);
  streams_.erase(found);
}

void StreamSet::LookAll() {
  for (LiveStream* stream : All()) LookIfThere(stream, &LiveStream::Look);
}

void StreamSet::LookAgain(LiveStream* stream) { LookIfThere(stream, &LiveStream::LookAgain); }

// Under the mutex all the same: Remove is called before any of them goes.
void StreamSet::Begin(LiveStream* stream, const absl::Status& found) {
  const absl::MutexLock lock(&mutex_);
  stream->Begin(found);
}

void StreamSet::EndUnknown(const Access& access) {
  const absl::MutexLock lock(&mutex_);
  for (const auto& [stream, caller] : streams_) {
    const absl::Status known = access.StillKnows(caller);
    if (!known.ok()) stream->Refuse(known);
  }
}

void StreamSet::End() {
  const absl::MutexLock lock(&mutex_);
  ended_ = true;
  for (const auto& [stream, caller] : streams_) stream->Refuse(Stopping());
}

std::vector<LiveStream*> StreamSet::All() {
  const absl::MutexLock lock(&mutex_);
  std::vector<LiveStream*> all;
  for (const auto& [stream, caller] : streams_) all.push_back(stream);
  return all;
}

void StreamSet::LookIfThere(LiveStream* stream, void (LiveStream::*look)()) {
  const absl::MutexLock lock(&mutex_);
  if (streams_.contains(stream)) (stream->*look)();
}

}  // namespace trireme::coordinator
