// Every call whose answer depends on what is stored is looked at on its way back.
#include "coordinator/job_store/damage_watch.h"

#include <utility>

#include "coordinator/job_store/forwarding_store.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

constexpr std::chrono::hours kAgain{1};

using Told = std::function<void(const absl::Status& why)>;

class Watched : public ForwardingStore {
 public:
  Watched(std::unique_ptr<JobStore> store, Told damaged)
      : ForwardingStore(std::move(store)), damaged_(std::move(damaged)) {}

  absl::Status CheckAll() override {
    absl::Status checked = ForwardingStore::CheckAll();
    if (absl::IsDataLoss(checked)) damaged_(checked);  // noted there
    return checked;
  }
  absl::Status Commit(Change& change) override { return Seen(ForwardingStore::Commit(change)); }
  absl::Status BeginEpoch() override { return Seen(ForwardingStore::BeginEpoch()); }
  absl::StatusOr<uint64_t> NextJobId(uint64_t after) override {
    return Seen(ForwardingStore::NextJobId(after));
  }
  absl::StatusOr<std::vector<v1::Job>> Jobs() override { return Seen(ForwardingStore::Jobs()); }
  absl::StatusOr<std::vector<v1::Job>> LiveJobs() override {
    return Seen(ForwardingStore::LiveJobs());
  }
  absl::StatusOr<std::vector<v1::Job>> JobsBefore(uint64_t id, size_t limit) override {
    return Seen(ForwardingStore::JobsBefore(id, limit));
  }
  absl::StatusOr<std::optional<v1::Job>> FindJob(uint64_t id) override {
    return Seen(ForwardingStore::FindJob(id));
  }
  absl::StatusOr<std::vector<std::string>> RunParents() override {
    return Seen(ForwardingStore::RunParents());
  }
  absl::StatusOr<std::optional<uint64_t>> FindRequest(const std::string& owner,
                                                      const std::string& request_id) override {
    return Seen(ForwardingStore::FindRequest(owner, request_id));
  }
  absl::StatusOr<std::vector<v1::Event>> Events(const EventQuery& query) override {
    return Seen(ForwardingStore::Events(query));
  }
  absl::StatusOr<uint64_t> LastSequence() override { return Seen(ForwardingStore::LastSequence()); }
  absl::StatusOr<uint64_t> FirstSequence() override {
    return Seen(ForwardingStore::FirstSequence());
  }
  absl::StatusOr<uint64_t> DropEvents(uint64_t keep, uint64_t most) override {
    return Seen(ForwardingStore::DropEvents(keep, most));
  }
  absl::Status DropJobs(const std::vector<uint64_t>& ids) override {
    return Seen(ForwardingStore::DropJobs(ids));
  }
  absl::StatusOr<std::vector<v1::Node>> Nodes() override { return Seen(ForwardingStore::Nodes()); }
  // Backup is left out: what it says of damage may be of the copy.

 private:
  static const absl::Status& StatusIn(const absl::Status& status) { return status; }
  template <typename Value>
  static const absl::Status& StatusIn(const absl::StatusOr<Value>& value) {
    return value.status();
  }
  template <typename Result>
  Result Seen(Result result) {
    if (!absl::IsDataLoss(StatusIn(result))) return result;
    damaged_(NoteDamage(StatusIn(result)));
    return result;
  }

  const Told damaged_;
};

}  // namespace

std::unique_ptr<JobStore> DamageWatch(std::unique_ptr<JobStore> store, Told damaged) {
  return std::make_unique<Watched>(std::move(store), std::move(damaged));
}

int64_t CheckTurns::Turn(int64_t now_unix_ns, Clock::time_point now) {
  using std::chrono::nanoseconds;
  if (over_) return 0;
  if (now < due_) return now_unix_ns + nanoseconds(due_ - now).count();
  const absl::Status checked = store_.CheckAll();
  over_ = checked.ok() || absl::IsCancelled(checked) || absl::IsDataLoss(checked);
  if (over_) return 0;
  failed_(checked);
  due_ = now + kAgain;
  return now_unix_ns + nanoseconds(kAgain).count();
}

}  // namespace trireme::coordinator
