// Checksums of what ranks hold in common, and the naming of those that differ.
#include "runtime/engine/replicas.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "runtime/checksum/crc32c.h"
#include "runtime/engine/engine_impl.h"

namespace trireme::engine {

namespace {

// Below the negative of every checksum.
constexpr double kHoldsNone = -0x1p33;
// Parts of the model whose copies are judged one by one, at most.
constexpr size_t kMostJudged = 64;

// Of `copies` ranks with the same value, this one is number `index`.
double TermOf(uint32_t checksum, uint32_t copies, uint32_t index) {
  if (copies < 2) return 0;
  const auto value = static_cast<double>(checksum);
  return index == 0 ? -value * (copies - 1) : value;
}

std::string RanksText(const std::vector<int>& ranks) {
  constexpr size_t kMostNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t index = 0; index < std::min(ranks.size(), kMostNamed); ++index) {
    absl::StrAppend(&text, index == 0 ? "" : ", ", ranks[index]);
  }
  if (ranks.size() > kMostNamed) {
    absl::StrAppend(&text, " and ", ranks.size() - kMostNamed, " more");
  }
  return text;
}

}  // namespace

ReplicaCheck::ReplicaCheck(const v1::Plan& plan, const graph::ModelGraph& graph,
                           const TrainingState& state, const plan::Coordinates& at,
                           const Arena& arena)
    : graph_(graph),
      state_(state),
      arena_(arena),
      mesh_(plan.mesh()),
      at_(at),
      shares_(plan::IsSharded(plan, v1::PARAMETER) ? plan.mesh().data() : 1),
      every_(static_cast<uint64_t>(plan.job().runtime().replica_check_steps())) {}

bool ReplicaCheck::Due(uint64_t step) const { return every_ > 0 && (step + 1) % every_ == 0; }

uint32_t ReplicaCheck::ChecksumOf(const TrainingState::HeldParameter& held, uint32_t before) const {
  uint32_t checksum = before;
  for (size_t at = 0; at < held.bytes.size(); at += Arena::kPassBytes) {
    const auto part = held.bytes.subspan(at, std::min(Arena::kPassBytes, held.bytes.size() - at));
    checksum = checksum::Crc32c(part, checksum);
    arena_.LetGo(held.data + at, part.size());
  }
  return checksum;
}

uint32_t ReplicaCheck::SumOver(bool whole_only, bool tied_only) const {
  uint32_t checksum = 0;
  for (size_t index = 0; index < state_.held_parameters(); ++index) {
    const TrainingState::HeldParameter held = state_.held_parameter(index);
    if ((whole_only && !held.whole) || (tied_only && !held.tied)) continue;
    checksum = ChecksumOf(held, checksum);
  }
  return checksum;
}

ReplicaCheck::Sums ReplicaCheck::Terms() const {
  Sums sums{};
  if (mesh_.data() > 1 && shares_ == 1)
    sums[0] = TermOf(SumOver(false, false), mesh_.data(), at_.data);
  if (mesh_.tensor() > 1) sums[1] = TermOf(SumOver(true, false), mesh_.tensor(), at_.tensor);
  const bool edge = at_.pipeline == 0 || at_.pipeline + 1 == mesh_.pipeline();
  if (mesh_.pipeline() > 1 && edge) {
    sums[2] = TermOf(SumOver(false, true), 2, at_.pipeline == 0 ? 0 : 1);
  }
  return sums;
}

bool ReplicaCheck::Agree(const Sums& sums) {
  return std::all_of(sums.begin(), sums.end(), [](double sum) { return sum == 0; });
}

size_t ReplicaCheck::PartOf(const TrainingState::HeldParameter& held) const {
  const size_t part = static_cast<size_t>(held.id) * mesh_.tensor() + (held.whole ? 0 : at_.tensor);
  return part * shares_ + (shares_ > 1 ? at_.data : 0);
}

std::vector<double> ReplicaCheck::Parts() const {
  std::vector<double> parts(2 * graph_.parameters.size() * mesh_.tensor() * shares_, kHoldsNone);
  for (size_t index = 0; index < state_.held_parameters(); ++index) {
    const TrainingState::HeldParameter held = state_.held_parameter(index);
    const double checksum = ChecksumOf(held, 0);
    parts[2 * PartOf(held)] = checksum;
    parts[2 * PartOf(held) + 1] = -checksum;
  }
  return parts;
}

std::vector<size_t> ReplicaCheck::Differing(std::span<const double> largest) {
  std::vector<size_t> differing;
  for (size_t part = 0; part < largest.size() / 2; ++part) {
    const bool held = largest[2 * part] != kHoldsNone;
    if (held && largest[2 * part] != -largest[2 * part + 1]) differing.push_back(part);
  }
  return differing;
}

double ReplicaCheck::ChecksumOf(std::span<const double> parts, size_t part) {
  return parts[2 * part] == kHoldsNone ? -1 : parts[2 * part];
}

std::string ReplicaCheck::NamesOf(std::span<const size_t> parts) const {
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> names;
  for (const size_t part : parts) {
    const std::string& name = graph_.parameters[part / shares_ / mesh_.tensor()].name;
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  const size_t named = std::min(names.size(), kMostNamed);
  std::string text = absl::StrJoin(names.begin(), names.begin() + static_cast<int>(named), ", ");
  if (named < names.size()) absl::StrAppend(&text, " and ", names.size() - named, " more");
  return text;
}

ReplicaVerdict JudgeReplicas(std::span<const double> checksums) {
  std::map<double, std::vector<int>> holders;  // ranks by what they hold
  size_t copies = 0;
  for (size_t rank = 0; rank < checksums.size(); ++rank) {
    if (checksums[rank] < 0) continue;
    holders[checksums[rank]].push_back(static_cast<int>(rank));
    ++copies;
  }
  const auto most = std::max_element(
      holders.begin(), holders.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const bool majority = most != holders.end() && 2 * most->second.size() > copies;
  ReplicaVerdict verdict;
  // In the order of the lowest rank.
  std::vector<std::vector<int>> sides;
  for (const auto& [checksum, ranks] : holders) {
    if (majority && ranks == most->second) continue;
    sides.push_back(ranks);
    verdict.wrong.insert(verdict.wrong.end(), ranks.begin(), ranks.end());
  }
  std::sort(verdict.wrong.begin(), verdict.wrong.end());
  std::sort(sides.begin(), sides.end());
  if (majority) {
    verdict.text =
        absl::StrCat(RanksText(verdict.wrong), verdict.wrong.size() == 1 ? " differs" : " differ",
                     " from ", RanksText(most->second));
    return verdict;
  }
  for (const std::vector<int>& side : sides) {
    absl::StrAppend(&verdict.text, verdict.text.empty() ? "" : " against ", RanksText(side));
  }
  absl::StrAppend(&verdict.text, ", with no majority, so which is right is not known");
  return verdict;
}

absl::Status Engine::Impl::CheckReplicas() {
  if (plan_.job().runtime().replica_check_steps() == 0) return absl::OkStatus();
  ReplicaCheck::Sums sums;
  OnDevice([&] { sums = replicas_->Terms(); });
  RETURN_IF_ERROR(agreement_->Reduce(sums, comm::ReduceOp::kSum));
  if (ReplicaCheck::Agree(sums)) return absl::OkStatus();
  OnDevice([&] { held_parts_ = replicas_->Parts(); });
  return NameDifferingReplicas("before a checkpoint");
}

// All ranks come here together, since all saw the same sums, with what they held then in
// held_parts_. `when`: of the step, or before what.
absl::Status Engine::Impl::NameDifferingReplicas(const std::string& when) {
  std::vector<double> parts = held_parts_;
  RETURN_IF_ERROR(agreement_->Reduce(parts, comm::ReduceOp::kMax));
  const std::vector<size_t> differing = ReplicaCheck::Differing(parts);
  if (differing.empty()) {
    return absl::DataLossError(absl::StrCat("silent corruption found ", when,
                                            ": checksums of the same weights, taken twice, differ "
                                            "on some rank; look for faulty memory"));
  }
  const size_t ranks = static_cast<size_t>(agreement_->size());
  const std::span<const size_t> judged(differing.data(), std::min(differing.size(), kMostJudged));
  std::vector<double> checksums(judged.size() * ranks, -1);
  for (size_t index = 0; index < judged.size(); ++index) {
    checksums[index * ranks + static_cast<size_t>(agreement_->rank())] =
        ReplicaCheck::ChecksumOf(held_parts_, judged[index]);
  }
  RETURN_IF_ERROR(agreement_->Reduce(checksums, comm::ReduceOp::kMax));
  // What is damaged on one rank changes other weights on several by the gradients that it makes; so
  // it is where the fewest are wrong that it began.
  ReplicaVerdict verdict;
  std::vector<size_t> where;
  bool elsewhere = false;  // as few others
  for (size_t index = 0; index < judged.size(); ++index) {
    ReplicaVerdict next = JudgeReplicas(std::span(checksums).subspan(index * ranks, ranks));
    if (where.empty() || next.wrong.size() < verdict.wrong.size()) {
      verdict = std::move(next);
      where = {judged[index]};
      elsewhere = false;
    } else if (next.text == verdict.text) {
      where.push_back(judged[index]);
    } else {
      elsewhere = elsewhere || next.wrong.size() == verdict.wrong.size();
    }
  }
  std::string more;
  if (const size_t others = differing.size() - where.size(); others > 0) {
    more = absl::StrCat("; ", others, " other part", others == 1 ? " differs" : "s differ", " too");
    if (elsewhere) absl::StrAppend(&more, ", on other ranks, so no single one is at fault");
  }
  const std::string text = absl::StrCat(
      "silent corruption found ", when, ": copies of ", replicas_->NamesOf(where),
      " should be equal to the bit: ", verdict.text, more,
      ". The run can go on from the last checkpoint; where the same node is named again, take it "
      "out and test its memory and processor (docs/operations.md)");
  const bool wrong =
      std::binary_search(verdict.wrong.begin(), verdict.wrong.end(), agreement_->rank());
  // The first rank to leave ends the others: by then those that are named have said so themselves.
  if (wrong && options_.recorder != nullptr) {
    options_.recorder->Fail(text, recorder::Blame::kItself);
  }
  (void)agreement_->AllAgree(true);
  return wrong ? absl::DataLossError(text) : absl::UnavailableError(text);
}

}  // namespace trireme::engine
