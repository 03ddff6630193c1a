// ZeRO-2 and ZeRO-3, where buckets are whole for a while: the program is walked with a map of what
// lies where in GATHERED and PARTIAL.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/state_layout.h"
#include "runtime/plan/verifier_program.h"
#include "runtime/tensor/dtype.h"

namespace trireme::plan {

namespace {

class LivesCheck {
 public:
  LivesCheck(const ProgramScope& scope, const ProgramIndex& index)
      : scope_(scope),
        index_(index),
        zero_(ZeroStage(*scope.plan)),
        buckets_(static_cast<size_t>(scope.stage().buckets_size())) {}

  absl::Status Run() {
    if (zero_ < 2) return absl::OkStatus();
    RETURN_IF_ERROR(CheckRoom());
    for (uint32_t at = 0; at < scope_.size(); ++at) RETURN_IF_ERROR(Add(at));
    return absl::OkStatus();
  }

 private:
  enum class Weights : uint8_t { kGone, kTravels, kThere };
  enum class Gradient : uint8_t { kNone, kWritten, kTravels };
  struct Life {
    Weights weights = Weights::kGone;
    Gradient gradient = Gradient::kNone;
    uint32_t since = 0;  // the instruction that began this life of the gradient
    // Operators of the list at hand that have still to write it.
    uint32_t missing = 0;
    uint32_t sum = kNowhere;  // its SUM
  };

  const v1::Bucket& Shape(size_t bucket) const {
    return scope_.stage().buckets(static_cast<int>(bucket));
  }
  uint64_t Offset(size_t bucket, bool weights) const {
    return weights ? Shape(bucket).gathered_offset() : Shape(bucket).partial_offset();
  }

  // Inside its pool, element by element.
  absl::Status CheckRoom() const {
    const tensor::DType compute = ComputeDType(scope_.plan->job());
    for (const v1::PoolKind kind : {v1::GATHERED, v1::PARTIAL}) {
      const bool weights = kind == v1::GATHERED;
      if (weights && zero_ < 3) continue;
      uint64_t room = 0;
      for (const v1::Pool& pool : scope_.stage().pools()) {
        if (pool.kind() == kind && pool.slots() > 0) {
          room = pool.slot_bytes() / tensor::SizeOf(StateDType(compute, kind));
        }
      }
      for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        const uint64_t offset = Offset(bucket, weights), count = Shape(bucket).count();
        if (offset <= room && count <= room - offset) continue;
        return absl::FailedPreconditionError(absl::StrCat(
            "stage ", scope_.pipeline, ": bucket ", bucket, " lies at elements [", offset, ", ",
            offset + count, ") of the pool ", v1::PoolKind_Name(kind), ", which holds ", room));
      }
    }
    return absl::OkStatus();
  }

  bool Meet(size_t a, size_t b, bool weights) const {
    const uint64_t first = Offset(a, weights), second = Offset(b, weights);
    return first < second + Shape(b).count() && second < first + Shape(a).count();
  }

  absl::Status Add(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    switch (instruction.kind()) {
      case v1::GATHER:
        return zero_ >= 3 ? BeginGather(at) : absl::OkStatus();
      case v1::REDUCE:
        return BeginReduce(at);
      case v1::WAIT:
        return EndOf(at);
      case v1::F:
      case v1::I:
      case v1::W:
      case v1::B:
        return Compute(at);
      case v1::SUM:
        RETURN_IF_ERROR(CheckReduced(at, instruction.bucket()));
        buckets_[instruction.bucket()].sum = at;
        return absl::OkStatus();
      case v1::STEP:
        if (buckets_[instruction.bucket()].weights != Weights::kTravels) return absl::OkStatus();
        return Fault(scope_, at, "writes weights that a GATHER under way reads");
      case v1::NORM:
        for (size_t bucket = 0; scope_.training && bucket < buckets_.size(); ++bucket) {
          RETURN_IF_ERROR(CheckReduced(at, bucket));
        }
        return absl::OkStatus();
      default:
        return absl::OkStatus();
    }
  }

  absl::Status CheckReduced(uint32_t at, size_t bucket) const {
    const Life& life = buckets_[bucket];
    if (life.gradient == Gradient::kNone) return absl::OkStatus();
    return Fault(scope_, at,
                 absl::StrCat("stands before the end of the REDUCE of bucket ", bucket,
                              ", which is written since instruction ", life.since));
  }

  // Whatever was gathered to the same place is gone.
  absl::Status BeginGather(uint32_t at) {
    const size_t own = scope_.at(at).bucket();
    if (own >= buckets_.size()) return absl::OkStatus();  // CheckBuckets has said so
    for (size_t other = 0; other < buckets_.size(); ++other) {
      if (!Meet(own, other, /*weights=*/true)) continue;
      if (buckets_[other].weights == Weights::kTravels) {
        return Fault(scope_, at, absl::StrCat("lies over bucket ", other, ", which still travels"));
      }
      buckets_[other].weights = Weights::kGone;
    }
    buckets_[own].weights = Weights::kTravels;
    return absl::OkStatus();
  }

  absl::Status BeginReduce(uint32_t at) {
    Life& life = buckets_[scope_.at(at).bucket()];
    if (life.gradient != Gradient::kWritten) {
      return Fault(scope_, at, "sums what no operator has written since the REDUCE before");
    }
    if (life.missing > 0) {
      return Fault(scope_, at,
                   absl::StrCat(life.missing, " operators of the list have still to write it"));
    }
    life.gradient = Gradient::kTravels;
    return absl::OkStatus();
  }

  absl::Status EndOf(uint32_t at) {
    const v1::Instruction& issue = scope_.at(index_.issued_at[scope_.at(at).ticket()]);
    if (issue.bucket() >= buckets_.size()) return absl::OkStatus();
    Life& life = buckets_[issue.bucket()];
    if (issue.kind() == v1::GATHER && zero_ >= 3) life.weights = Weights::kThere;
    if (issue.kind() == v1::REDUCE) life.gradient = Gradient::kNone;
    return absl::OkStatus();
  }

  absl::Status Compute(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    const VirtualStageFacts& facts = scope_.facts->virtual_stages[instruction.virtual_stage()];
    const auto each = [&](const VirtualStageFacts::Writes& uses, const auto& check) {
      auto use = std::lower_bound(uses.begin(), uses.end(),
                                  std::pair<uint32_t, uint32_t>{instruction.op_begin(), 0});
      for (; use != uses.end() && use->first < instruction.op_end(); ++use) {
        RETURN_IF_ERROR(check(use->first, use->second));
      }
      return absl::OkStatus();
    };
    if (zero_ >= 3) {
      RETURN_IF_ERROR(each(facts.reads[instruction.kind()], [&](uint32_t op, uint32_t bucket) {
        if (buckets_[bucket].weights == Weights::kThere) return absl::OkStatus();
        return Fault(scope_, at,
                     absl::StrCat("operator ", op, " reads weights of bucket ", bucket,
                                  ", which are not gathered"));
      }));
    }
    RETURN_IF_ERROR(each(facts.partly[instruction.kind()], [&](uint32_t op, uint32_t bucket) {
      return Fault(scope_, at,
                   absl::StrCat("operator ", op, " begins the gradient of bucket ", bucket,
                                ", of which other lists write a part: its REDUCE would sum what "
                                "lay there"));
    }));
    const VirtualStageFacts::Writes& writes = facts.WritesOf(instruction.kind());
    return each(writes,
                [&](uint32_t op, uint32_t bucket) { return Write(at, op, bucket, writes); });
  }

  absl::Status Write(uint32_t at, uint32_t op, uint32_t bucket,
                     const VirtualStageFacts::Writes& writes) {
    Life& life = buckets_[bucket];
    if (life.sum != kNowhere) {
      return Fault(scope_, at,
                   absl::StrCat("operator ", op, " writes the gradient of bucket ", bucket,
                                " after its SUM, instruction ", life.sum));
    }
    if (life.gradient == Gradient::kTravels) {
      return Fault(scope_, at,
                   absl::StrCat("operator ", op, " writes the gradient of bucket ", bucket,
                                ", whose REDUCE is under way"));
    }
    if (life.gradient == Gradient::kWritten && life.missing > 0) {
      --life.missing;
      return absl::OkStatus();
    }
    if (life.gradient == Gradient::kWritten) {
      return Fault(scope_, at,
                   absl::StrCat("operator ", op, " begins the gradient of bucket ", bucket,
                                " anew, which no REDUCE has summed"));
    }
    for (size_t other = 0; other < buckets_.size(); ++other) {
      if (other == bucket || buckets_[other].gradient == Gradient::kNone) continue;
      if (!Meet(bucket, other, /*weights=*/false)) continue;
      return Fault(scope_, at,
                   absl::StrCat("operator ", op, " writes the gradient of bucket ", bucket,
                                " over that of bucket ", other, ", which is not summed"));
    }
    life.gradient = Gradient::kWritten;
    life.since = at;
    life.missing = static_cast<uint32_t>(
                       std::count_if(writes.begin(), writes.end(),
                                     [&](const auto& write) { return write.second == bucket; })) -
                   1;
    return absl::OkStatus();
  }

  const ProgramScope& scope_;
  const ProgramIndex& index_;
  const int zero_;
  std::vector<Life> buckets_;
};

}  // namespace

absl::Status CheckLives(const ProgramScope& scope, const ProgramIndex& index) {
  return LivesCheck(scope, index).Run();
}

}  // namespace trireme::plan
