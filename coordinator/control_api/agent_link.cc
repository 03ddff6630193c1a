// A session reads one message at a time and writes one; what waits to be written is the newest
// of its kind.
#include "coordinator/control_api/agent_link.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"

namespace trireme::coordinator {
namespace {

constexpr double kReportSeconds = 1;

bool IsNodeName(const std::string& name) {
  constexpr std::string_view kLegal =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !name.empty() && name.size() <= 253 && name[0] != '-' && name[0] != '.' &&
         name.find_first_not_of(kLegal) == std::string::npos;
}

// Of what is told of a node; no user has such a name.
std::string OwnerOf(const std::string& node) { return '\0' + node; }

// Of agents of before, which have no id, the folder says as much as they can.
std::string HolderOf(const v1::AgentHello& hello, const std::string& user) {
  return absl::CHexEscape(user + " " + hello.boot_id() + " " +
                          (hello.agent_id().empty() ? hello.state_folder() : hello.agent_id()));
}

// `holder`: what HolderOf gave for who has the name.
NameAsker AskerOf(const v1::AgentHello& hello, const std::string& holder) {
  const std::string& id = hello.agent_id();
  const auto ends_with = [&](const std::string& text) {
    return holder.ends_with(absl::CHexEscape(" " + text));
  };
  if (id.empty() || !ends_with(id)) return NameAsker::kAnother;
  return ends_with(hello.boot_id() + " " + id) ? NameAsker::kByAnotherToken
                                               : NameAsker::kAfterReboot;
}

}  // namespace

// Deletes itself when gRPC is done with it.
class AgentSession : public grpc::ServerBidiReactor<v1::FromAgent, v1::ToAgent> {
 public:
  // `caller`: whose token it has.
  AgentSession(AgentLinkService& link, const ApiRooms& rooms, Caller caller)
      : link_(link), rooms_(rooms), caller_(std::move(caller)) {
    StartRead(&incoming_);
  }

  void Send(const v1::DesiredAttempts& desired) {
    const absl::MutexLock lock(&mutex_);
    desired_.emplace();
    *desired_->mutable_desired() = desired;
    Write();
  }

  void Adopt(uint64_t revision) {
    const absl::MutexLock lock(&mutex_);
    first_.emplace();
    first_->mutable_adopt()->set_revision(revision);
    Write();
  }

  void Taken(uint64_t number) {
    const absl::MutexLock lock(&mutex_);
    taken_.emplace();
    taken_->mutable_taken()->set_number(number);
    Write();
  }

  // The line lives, whatever the reconciler and its store do with what was said.
  void Answer() {
    const absl::MutexLock lock(&mutex_);
    answer_.emplace();
    Write();
  }

  void Close(const grpc::Status& status) {
    const absl::MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    Finish(status);
  }

  void CloseIfUnknown() {
    const absl::Status known = rooms_.access.StillKnows(caller_);
    if (!known.ok()) Close(ToGrpc(known));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Close(grpc::Status::OK);
    const grpc::Status status = node_.empty() ? Greet() : Hear();
    if (!status.ok()) return Close(status);
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Close(grpc::Status::CANCELLED);
    const absl::MutexLock lock(&mutex_);
    writing_ = false;
    Write();
  }

  void OnCancel() override { Close(grpc::Status::CANCELLED); }

  void OnDone() override {
    if (!node_.empty()) link_.Leave(node_, this);
    delete this;
  }

 private:
  grpc::Status Greet() {
    if (!incoming_.has_hello() || !IsNodeName(incoming_.hello().node())) {
      return ToGrpc(absl::InvalidArgumentError(
          "hello.node: the first message must be hello with a node name of letters, digits, '-', "
          "'_', '.'"));
    }
    const absl::Status named = MayBeNode(caller_, incoming_.hello().node());
    if (!named.ok()) return ToGrpc(named);
    const std::string holder = HolderOf(incoming_.hello(), caller_.user);
    const auto now = std::chrono::steady_clock::now();
    const std::string& node = incoming_.hello().node();
    const NameTurn turn = NameTurnOf(rooms_.table, {rooms_.lease, rooms_.lost_node_after}, node,
                                     AskerOf(incoming_.hello(), link_.leases_.HolderOf(node)));
    if (!link_.leases_.Take(node, holder, now, turn.lease)) {
      if (turn.when_replaced) {
        Tell(node, [node](Reconciler& reconciler) {
          reconciler.NameWanted(node);
          return absl::OkStatus();
        });
      }
      return ToGrpc(absl::AlreadyExistsError(
          "node " + node +
          " is kept by another agent, of another machine or with another --state-dir; give this "
          "one a name of its own by --node (after a restart of the machine, or where it takes the "
          "place of one that has ended, it is let in when the lease is over and the jobs there go "
          "on elsewhere or have been replaced; where ranks of the other one may live that silence "
          "does not end, after: trireme drain NODE --gone)"));
    }
    {
      const absl::MutexLock lock(&mutex_);
      const v1::AgentHello& hello = incoming_.hello();
      const uint64_t sequence = rooms_.table.last_sequence();
      first_.emplace();
      v1::AgentWelcome& welcome = *first_->mutable_welcome();
      *welcome.mutable_store() = rooms_.identity.At(sequence);
      welcome.set_continues(!hello.has_served() ||
                            rooms_.identity.Continues(hello.served(), sequence));
      welcome.set_lease_seconds(static_cast<double>(rooms_.lease.count()) / 1000);
      welcome.set_report_seconds(kReportSeconds);
      Write();
    }
    node_ = incoming_.hello().node();
    link_.Enter(node_, this);
    // Taken back since the call came: who ends sessions may have looked before this one was there.
    if (const absl::Status known = rooms_.access.StillKnows(caller_); !known.ok()) {
      return ToGrpc(known);
    }
    return Tell(node_, [hello = incoming_.hello(), holder](Reconciler& reconciler) {
      return reconciler.Hello(hello, NowUnixNs(), holder);
    });
  }

  grpc::Status Hear() {
    if (!incoming_.has_report()) {
      return ToGrpc(absl::InvalidArgumentError("report: expected one after hello"));
    }
    link_.leases_.Renew(node_, std::chrono::steady_clock::now());
    // One that finds the mailbox full, or the disk, is left out: the next one says it all again.
    Tell(node_,
         [node = node_, report = std::move(*incoming_.mutable_report())](Reconciler& reconciler) {
           return reconciler.Report(node, report, NowUnixNs());
         });
    Answer();
    return grpc::Status::OK;
  }

  template <typename Words>
  grpc::Status Tell(const std::string& node, Words words) {
    return ToGrpc(rooms_.reconciler_thread.Post(
        [&reconciler = rooms_.reconciler, words = std::move(words)] {
          words(reconciler).IgnoreError();
        },
        OwnerOf(node)));
  }

  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::optional<v1::ToAgent>& next = first_     ? first_
                                       : desired_ ? desired_
                                       : taken_   ? taken_
                                                  : answer_;
    if (writing_ || closed_ || !next) return;
    outgoing_ = std::move(*next);
    next.reset();
    writing_ = true;
    StartWrite(&outgoing_);
  }

  AgentLinkService& link_;
  const ApiRooms& rooms_;
  v1::FromAgent incoming_;  // of the read under way
  // Set by the first message, before others can know of us.
  std::string node_;
  const Caller caller_;
  absl::Mutex mutex_;
  std::optional<v1::ToAgent> first_ ABSL_GUARDED_BY(mutex_);  // the welcome, later an adoption
  std::optional<v1::ToAgent> desired_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ToAgent> taken_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ToAgent> answer_ ABSL_GUARDED_BY(mutex_);  // says nothing
  v1::ToAgent outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

class RefusedAgent : public grpc::ServerBidiReactor<v1::FromAgent, v1::ToAgent> {
 public:
  explicit RefusedAgent(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerBidiReactor<v1::FromAgent, v1::ToAgent>* AgentLinkService::Connect(Context* context) {
  auto caller = CallerOf(*context, rooms_.access);
  if (!caller.ok()) return new RefusedAgent(ToGrpc(caller.status()));
  const absl::Status role = MustBe(*caller, Role::kAgent);
  if (!role.ok()) return new RefusedAgent(ToGrpc(role));
  return new AgentSession(*this, rooms_, *caller);
}

AgentLinkService::AgentLinkService(const ApiRooms& rooms) : rooms_(rooms) {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [node, holder] : rooms.holders) leases_.Recall(node, holder, now);
}

void AgentLinkService::Enter(const std::string& node, AgentSession* session) {
  const absl::MutexLock lock(&mutex_);
  AgentSession*& current = sessions_[node];
  if (current != nullptr) {
    current->Close(
        grpc::Status(grpc::StatusCode::ABORTED, "another agent of this node dialled in"));
  }
  current = session;
}

void AgentLinkService::Leave(const std::string& node, AgentSession* session) {
  const absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(node);
  if (found != sessions_.end() && found->second == session) sessions_.erase(found);
}

void AgentLinkService::SendDesired(const std::string& node, const v1::DesiredAttempts& desired) {
  const absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(node);
  if (found != sessions_.end()) found->second->Send(desired);
}

void AgentLinkService::SendAdopt(const std::string& node, uint64_t revision) {
  const absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(node);
  if (found != sessions_.end()) found->second->Adopt(revision);
}

void AgentLinkService::SendTaken(const std::string& node, uint64_t number) {
  const absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(node);
  if (found != sessions_.end()) found->second->Taken(number);
}

void AgentLinkService::EndUnknownStreams() {
  const absl::MutexLock lock(&mutex_);
  for (const auto& [node, session] : sessions_) session->CloseIfUnknown();
}

void AgentLinkService::EndStreams() {
  const absl::MutexLock lock(&mutex_);
  for (const auto& [node, session] : sessions_) {
    session->Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is stopping"));
  }
}

}  // namespace trireme::coordinator
