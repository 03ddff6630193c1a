// Abstract execution of the programs of all coordinates at once. Transfers are paired beforehand
// (first-in first-out per sender, receiver and channel), so "has the other side issued?" is a
// comparison of positions, and a coordinate is only looked at again when the one it waits for has
// moved past the instruction it waits for.
#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/state_layout.h"
#include "runtime/plan/verifier_program.h"

namespace trireme::plan {
namespace {

struct Place {
  uint32_t pipeline = 0;
  uint32_t at = kNowhere;
};

struct Queues {
  std::vector<Place> sends;
  std::vector<Place> receives;
};

class Execution {
 public:
  Execution(const std::vector<ProgramScope>& scopes, const std::vector<ProgramIndex>& indexes)
      : scopes_(scopes), indexes_(indexes) {}

  absl::Status Run() {
    for (const ProgramScope& scope : scopes_) {
      partner_.emplace_back(scope.size());
      globals_.emplace_back();
    }
    RETURN_IF_ERROR(PairTransfers());
    RETURN_IF_ERROR(PairTiedSums());
    RETURN_IF_ERROR(CompareGlobals());
    position_.assign(scopes_.size(), 0);
    arrived_.assign(scopes_.size(), 0);
    arrivals_.assign(globals_[0].size(), 0);
    for (uint32_t p = Ranks(); p-- > 0;) ready_.push_back(p);
    while (!ready_.empty()) {
      const uint32_t p = ready_.back();
      ready_.pop_back();
      Advance(p);
    }
    for (uint32_t p = 0; p < Ranks(); ++p) {
      if (position_[p] < scopes_[p].size()) return Deadlock(p);
    }
    return absl::OkStatus();
  }

 private:
  uint32_t Ranks() const { return static_cast<uint32_t>(scopes_.size()); }

  absl::Status PairTransfers() {
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Queues> queues;  // (from, to, channel)
    for (uint32_t p = 0; p < Ranks(); ++p) {
      for (uint32_t at = 0; at < scopes_[p].size(); ++at) {
        const v1::Instruction& instruction = scopes_[p].at(at);
        const v1::InstructionKind kind = instruction.kind();
        if (kind == v1::LOAD || kind == v1::NORM) globals_[p].push_back(at);
        const bool send = kind == v1::SEND_ACT || kind == v1::SEND_GRAD;
        const bool receive = kind == v1::RECV_ACT || kind == v1::RECV_GRAD;
        if (!send && !receive) continue;
        const uint32_t peer = static_cast<uint32_t>(static_cast<int32_t>(p) + instruction.peer());
        if (send) queues[{p, peer, instruction.channel()}].sends.push_back({p, at});
        if (receive) queues[{peer, p, instruction.channel()}].receives.push_back({p, at});
      }
    }
    for (const auto& [key, queue] : queues) RETURN_IF_ERROR(PairQueue(queue));
    return absl::OkStatus();
  }

  absl::Status PairQueue(const Queues& queue) {
    const size_t pairs = std::min(queue.sends.size(), queue.receives.size());
    for (size_t i = 0; i < pairs; ++i) {
      RETURN_IF_ERROR(CheckPair(queue.sends[i], queue.receives[i]));
      Pair(queue.sends[i], queue.receives[i]);
    }
    if (queue.sends.size() == queue.receives.size()) return absl::OkStatus();
    const bool send = queue.sends.size() > pairs;
    const Place& single = send ? queue.sends[pairs] : queue.receives[pairs];
    return Fault(scopes_[single.pipeline], single.at,
                 absl::StrCat("channel ", scopes_[single.pipeline].at(single.at).channel(),
                              " has no matching ", send ? "receive" : "send"));
  }

  absl::Status CheckPair(const Place& from, const Place& to) const {
    const v1::Instruction& send = scopes_[from.pipeline].at(from.at);
    const v1::Instruction& receive = scopes_[to.pipeline].at(to.at);
    const bool act = send.kind() == v1::SEND_ACT;
    const uint32_t sender = scopes_[from.pipeline].GlobalStage(send.virtual_stage());
    const uint32_t receiver = scopes_[to.pipeline].GlobalStage(receive.virtual_stage());
    const bool kinds = receive.kind() == (act ? v1::RECV_ACT : v1::RECV_GRAD);
    const bool stages = act ? sender + 1 == receiver : receiver + 1 == sender;
    if (kinds && stages && send.micro_batch() == receive.micro_batch()) return absl::OkStatus();
    return Fault(scopes_[from.pipeline], from.at,
                 absl::StrCat("by its place in the queue of channel ", send.channel(),
                              " it meets another message: ", Locate(scopes_[to.pipeline], to.at)));
  }

  void Pair(const Place& a, const Place& b) {
    partner_[a.pipeline][a.at] = b;
    partner_[b.pipeline][b.at] = a;
  }

  // Where a tied bucket is added up between the first and the last coordinate: inside the WAIT of
  // its REDUCE, or in its SUM (ZeRO-2, ZeRO-3).
  bool AddsTied(uint32_t p, uint32_t at) const {
    const v1::InstructionKind kind = scopes_[p].at(at).kind();
    const bool sums = ZeroStage(*scopes_[p].plan) >= 2;
    if (kind != (sums ? v1::SUM : v1::WAIT)) return false;
    const uint32_t issue = IssueOf(p, at);
    if (!sums && scopes_[p].at(issue).kind() != v1::REDUCE) return false;
    return IsPartialOver(BucketOf(p, issue), v1::AXIS_TIED);
  }

  // The n-th such place of one end meets the n-th of the other.
  absl::Status PairTiedSums() {
    const uint32_t last = Ranks() - 1;
    std::vector<std::vector<uint32_t>> tied(Ranks());
    for (uint32_t p = 0; p < Ranks(); ++p) {
      for (uint32_t at = 0; at < scopes_[p].size(); ++at) {
        if (!AddsTied(p, at)) continue;
        if (p != 0 && p != last) {
          return Fault(scopes_[p], IssueOf(p, at),
                       "is tied, but only the first and last coordinate can be");
        }
        tied[p].push_back(at);
      }
    }
    if (last == 0) return absl::OkStatus();
    const size_t pairs = std::min(tied[0].size(), tied[last].size());
    for (size_t i = 0; i < pairs; ++i) {
      const uint32_t first_issue = IssueOf(0, tied[0][i]);
      const uint32_t last_issue = IssueOf(last, tied[last][i]);
      if (BucketOf(0, first_issue).count() != BucketOf(last, last_issue).count()) {
        return Fault(scopes_[0], first_issue,
                     absl::StrCat("the tied bucket it meets has another size: ",
                                  Locate(scopes_[last], last_issue)));
      }
      Pair({0, tied[0][i]}, {last, tied[last][i]});
    }
    if (tied[0].size() == tied[last].size()) return absl::OkStatus();
    const uint32_t p = tied[0].size() > pairs ? 0 : last;
    return Fault(scopes_[p], IssueOf(p, tied[p][pairs]),
                 "has no matching tied REDUCE on the other end");
  }

  const v1::Bucket& BucketOf(uint32_t p, uint32_t at) const {
    return scopes_[p].stage().buckets(static_cast<int>(scopes_[p].at(at).bucket()));
  }

  // LOAD and NORM are over all ranks: the same ones in the same order everywhere.
  absl::Status CompareGlobals() const {
    for (uint32_t p = 1; p < Ranks(); ++p) {
      const size_t count = std::max(globals_[0].size(), globals_[p].size());
      for (size_t i = 0; i < count; ++i) {
        if (i >= globals_[p].size() || i >= globals_[0].size()) {
          const uint32_t longer = i < globals_[p].size() ? p : 0;
          return Fault(scopes_[longer], globals_[longer][i],
                       absl::StrCat("stage ", longer == p ? 0 : p, " does not take part"));
        }
        if (scopes_[p].at(globals_[p][i]).kind() == scopes_[0].at(globals_[0][i]).kind()) continue;
        return Fault(scopes_[p], globals_[p][i],
                     absl::StrCat("meets ", Locate(scopes_[0], globals_[0][i])));
      }
    }
    return absl::OkStatus();
  }

  void Advance(uint32_t p) {
    while (position_[p] < scopes_[p].size()) {
      const uint32_t at = position_[p];
      const v1::InstructionKind kind = scopes_[p].at(at).kind();
      if (MayBlock(kind) && !Done(p, at)) return;
      if ((kind == v1::LOAD || kind == v1::NORM) && !Arrive(p)) return;
      ++position_[p];
      const Place& partner = partner_[p][at];
      if (partner.at != kNowhere && WaitsFor(partner)) ready_.push_back(partner.pipeline);
    }
  }

  static bool MayBlock(v1::InstructionKind kind) { return kind == v1::WAIT || kind == v1::SUM; }

  // The issue whose ticket the WAIT at `at` takes; a SUM is its own.
  uint32_t IssueOf(uint32_t p, uint32_t at) const {
    if (scopes_[p].at(at).kind() == v1::SUM) return at;
    return indexes_[p].issued_at[scopes_[p].at(at).ticket()];
  }

  // The other side of a WAIT: a WAIT too if both must stand there at once, else an issue; or none.
  const Place& MetAt(uint32_t p, uint32_t wait) const {
    const Place& other = partner_[p][wait];
    return other.at != kNowhere ? other : partner_[p][IssueOf(p, wait)];
  }

  bool Done(uint32_t p, uint32_t wait) const {
    const Place& other = MetAt(p, wait);
    if (other.at == kNowhere) return true;
    const bool meets = partner_[p][wait].at != kNowhere;
    return position_[other.pipeline] >= other.at + (meets ? 0 : 1);
  }

  // The coordinate stands at this WAIT, or at the one of this issue.
  bool WaitsFor(const Place& place) const {
    const uint32_t at = position_[place.pipeline];
    const ProgramScope& scope = scopes_[place.pipeline];
    return at < scope.size() && MayBlock(scope.at(at).kind()) &&
           (at == place.at || IssueOf(place.pipeline, at) == place.at);
  }

  // True once every coordinate stands at this LOAD or NORM.
  bool Arrive(uint32_t p) {
    const auto& list = globals_[p];
    const size_t which = static_cast<size_t>(
        std::lower_bound(list.begin(), list.end(), position_[p]) - list.begin());
    if (arrived_[p] == which) {
      ++arrived_[p];
      if (++arrivals_[which] == Ranks()) {
        for (uint32_t other = 0; other < Ranks(); ++other) {
          if (other != p) ready_.push_back(other);
        }
      }
    }
    return arrivals_[which] == Ranks();
  }

  // The stage that a stuck stage waits for: it is stuck too, or it would have moved on.
  uint32_t Blocker(uint32_t p) const {
    const uint32_t at = position_[p];
    if (MayBlock(scopes_[p].at(at).kind())) return MetAt(p, at).pipeline;
    uint32_t other = 0;
    while (other + 1 < Ranks() && arrived_[other] >= arrived_[p]) ++other;
    return other;
  }

  absl::Status Deadlock(uint32_t p) const {
    for (uint32_t i = 0; i < Ranks(); ++i) p = Blocker(p);  // into the circle
    std::string text = absl::StrCat("deadlock in ", scopes_[p].name, ": ");
    const uint32_t first = p;
    constexpr int kNamed = 8;
    for (int named = 0; named < kNamed; ++named) {
      absl::StrAppend(&text, named == 0 ? "" : ", which ", named == 0 ? Stage(p) : "",
                      "waits at instruction ", position_[p], " (",
                      NameInstruction(scopes_[p], position_[p], &indexes_[p]), ") for ");
      p = Blocker(p);
      absl::StrAppend(&text, "stage ", p);
      if (p == first) return absl::FailedPreconditionError(absl::StrCat(text, " (a circle)"));
    }
    return absl::FailedPreconditionError(absl::StrCat(text, ", and so on in a circle"));
  }

  static std::string Stage(uint32_t p) { return absl::StrCat("stage ", p, " "); }

  const std::vector<ProgramScope>& scopes_;
  const std::vector<ProgramIndex>& indexes_;
  std::vector<std::vector<Place>>
      partner_;  // [coordinate][instruction]: the other side of an issue or a tied WAIT
  std::vector<std::vector<uint32_t>> globals_;  // [coordinate]: its LOAD and NORM
  std::vector<uint32_t> position_;
  std::vector<size_t> arrived_;     // [coordinate]: LOADs and NORMs reached
  std::vector<uint32_t> arrivals_;  // [n-th LOAD or NORM]: coordinates there
  std::vector<uint32_t> ready_;
};

}  // namespace

absl::Status CheckRendezvous(const std::vector<ProgramScope>& scopes,
                             const std::vector<ProgramIndex>& indexes) {
  return Execution(scopes, indexes).Run();
}

}  // namespace trireme::plan
