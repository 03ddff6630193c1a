// LOAD, NORM and what becomes of every bucket: the last operator that writes it, REDUCE and its
// WAIT, NORM, STEP, GATHER and its WAIT, in this order. Of ZeRO-2 and ZeRO-3, SUM before NORM; the
// rest is verifier_lives.cc's.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/verifier_program.h"

namespace trireme::plan {
namespace {

struct BucketUse {
  uint32_t reduce = kNowhere;
  uint32_t sum = kNowhere;
  uint32_t step = kNowhere;       // the first; one alone where optimizer state is in the arena
  uint32_t last_step = kNowhere;  // of its pieces
  uint32_t gather = kNowhere;
};

absl::Status MissingOf(const ProgramScope& scope, size_t bucket, const char* what) {
  return absl::FailedPreconditionError(absl::StrCat("stage ", scope.pipeline, ", ", scope.name,
                                                    ": ", what, " of bucket ", bucket,
                                                    " is missing"));
}

class BucketCheck {
 public:
  BucketCheck(const ProgramScope& scope, const ProgramIndex& index)
      : scope_(scope),
        index_(index),
        zero_(ZeroStage(*scope.plan)),
        uses_(static_cast<size_t>(scope.stage().buckets_size())) {}

  absl::Status Run() {
    for (uint32_t at = 0; at < scope_.size(); ++at) RETURN_IF_ERROR(Add(at));
    RETURN_IF_ERROR(CheckGlobal());
    if (!scope_.training) return absl::OkStatus();
    for (size_t bucket = 0; bucket < uses_.size(); ++bucket) RETURN_IF_ERROR(CheckBucket(bucket));
    return absl::OkStatus();
  }

 private:
  absl::Status Add(uint32_t at) {
    const v1::Instruction& instruction = scope_.at(at);
    RETURN_IF_ERROR(CheckCoded(at));
    switch (instruction.kind()) {
      case v1::LOAD:
        return Once(at, load_);
      case v1::NORM:
        return Once(at, norm_);
      case v1::REDUCE:
        RETURN_IF_ERROR(InRange(at));
        // One for each micro-batch: CheckLives.
        return zero_ >= 2 ? absl::OkStatus() : Once(at, uses_[instruction.bucket()].reduce);
      case v1::SUM:
        RETURN_IF_ERROR(InRange(at));
        return Once(at, uses_[instruction.bucket()].sum);
      case v1::STEP:
        RETURN_IF_ERROR(InRange(at));
        return AddStep(at, uses_[instruction.bucket()]);
      case v1::GATHER:
        RETURN_IF_ERROR(InRange(at));
        return zero_ >= 3 ? absl::OkStatus() : Once(at, uses_[instruction.bucket()].gather);
      case v1::F:
      case v1::I:
      case v1::W:
      case v1::B:
        return AddCompute(at);
      default:
        return absl::OkStatus();
    }
  }

  // Both sides of a transfer must see it alike, and nothing is coded that the job does not ask for.
  absl::Status CheckCoded(uint32_t at) const {
    const v1::Instruction& instruction = scope_.at(at);
    bool meant = false;
    if (instruction.kind() == v1::REDUCE) {
      const std::vector<bool>& buckets = scope_.facts->coded_buckets;
      meant = instruction.bucket() < buckets.size() && buckets[instruction.bucket()];
    } else if (instruction.kind() >= v1::SEND_ACT && instruction.kind() <= v1::RECV_GRAD) {
      meant = scope_.training && scope_.facts->code_messages;
    }
    if (instruction.coded() == meant) return absl::OkStatus();
    return Fault(scope_, at,
                 meant ? "is not coded, but the job asks for it"
                       : "is coded, but the job does not ask for it");
  }

  absl::Status AddCompute(uint32_t at) {
    if (load_ == kNowhere) return Fault(scope_, at, "computes before LOAD");
    if (norm_ != kNowhere) return Fault(scope_, at, "computes after NORM");
    return zero_ >= 2 ? absl::OkStatus() : CheckWrites(at);
  }

  // What is being summed, or is summed, is not written any more.
  absl::Status CheckWrites(uint32_t at) const {
    const v1::Instruction& instruction = scope_.at(at);
    const auto& writes =
        scope_.facts->virtual_stages[instruction.virtual_stage()].WritesOf(instruction.kind());
    auto write = std::lower_bound(writes.begin(), writes.end(),
                                  std::pair<uint32_t, uint32_t>{instruction.op_begin(), 0});
    for (; write != writes.end() && write->first < instruction.op_end(); ++write) {
      const uint32_t bucket = write->second;
      if (bucket >= uses_.size() || uses_[bucket].reduce == kNowhere) continue;
      return Fault(scope_, uses_[bucket].reduce,
                   absl::StrCat("stands before operator ", write->first, " of ", Locate(scope_, at),
                                ", which writes its bucket"));
    }
    return absl::OkStatus();
  }

  absl::Status AddStep(uint32_t at, BucketUse& use) const {
    use.last_step = at;
    const bool in_pieces = OffloadsState(scope_.plan->job());  // CheckSwaps counts them
    if (in_pieces && use.step != kNowhere) return absl::OkStatus();
    return Once(at, use.step);
  }

  absl::Status Once(uint32_t at, uint32_t& place) const {
    if (place != kNowhere) {
      return Fault(scope_, at, absl::StrCat("stands twice, first at instruction ", place));
    }
    place = at;
    return absl::OkStatus();
  }

  absl::Status InRange(uint32_t at) const {
    if (scope_.at(at).bucket() < uses_.size()) return absl::OkStatus();
    return Fault(scope_, at, absl::StrCat("the stage has ", uses_.size(), " buckets"));
  }

  absl::Status CheckGlobal() const {
    if (load_ != kNowhere && (norm_ != kNowhere || !scope_.training)) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("stage ", scope_.pipeline, ", ", scope_.name,
                                                      ": ", load_ == kNowhere ? "LOAD" : "NORM",
                                                      " is missing"));
  }

  absl::Status CheckBucket(size_t bucket) const {
    const BucketUse& use = uses_[bucket];
    const v1::Bucket& shape = scope_.stage().buckets(static_cast<int>(bucket));
    const bool sums = IsPartialOver(shape, v1::AXIS_TENSOR) || IsPartialOver(shape, v1::AXIS_TIED);
    if (zero_ >= 2) {
      if (sums && use.sum == kNowhere) return MissingOf(scope_, bucket, "SUM");
      if (sums && use.sum > norm_) return Fault(scope_, use.sum, "stands behind NORM");
    } else if (use.sum != kNowhere) {
      return Fault(scope_, use.sum, "has no place below ZeRO-2, whose REDUCEs sum over all axes");
    } else if (use.reduce != kNowhere) {
      if (index_.WaitOf(scope_, use.reduce) > norm_) {
        return Fault(scope_, use.reduce, "is not waited for before NORM, which reads its sum");
      }
    } else if (shape.axes_size() > 0) {
      return MissingOf(scope_, bucket, "REDUCE");
    }
    if (use.step == kNowhere) return MissingOf(scope_, bucket, "STEP");
    if (use.step < norm_) return Fault(scope_, use.step, "stands before NORM, whose norm it needs");
    if (use.gather == kNowhere) {
      if (zero_ == 1 || zero_ == 2) return MissingOf(scope_, bucket, "GATHER");
    } else if (use.gather < use.last_step) {
      return Fault(scope_, use.gather, "stands before the STEP that makes what it gathers");
    }
    return absl::OkStatus();
  }

  const ProgramScope& scope_;
  const ProgramIndex& index_;
  const int zero_;
  std::vector<BucketUse> uses_;
  uint32_t load_ = kNowhere;
  uint32_t norm_ = kNowhere;
};

}  // namespace

absl::Status CheckBuckets(const ProgramScope& scope, const ProgramIndex& index) {
  return BucketCheck(scope, index).Run();
}

}  // namespace trireme::plan
