// TransferCoding: what the transfers that the plan marks as coded say of themselves to their group
// (comm::Coding): the bound of every gradient, the bound of messages, whether the way is worth it,
// and what came of it.
//
// The bound of a gradient's sum follows AdamW's second moment v: after t updates the mean square of
// an element's gradient is v / (1 - beta2^t) (Adam's bias correction, arXiv 1412.6980), after
// clipping. v of a matrix is taken as the product of its means over rows and over columns (as
// Adafactor does, arXiv 1804.04235), known to all replicas at little cost also where each has a
// share of v alone. It is state that is kept anyway: a resumed run has the same bounds to the bit.
// Each of n replicas may be wrong by 1/n of the bound, and where tensor ranks have parts of a
// gradient that are added up too, each part by its share of that (docs/adr/0006). Sums that travel
// as bf16 have no bound, from the first step on (docs/adr/0017).
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "compress/codec.h"
#include "runtime/comm/coding.h"
#include "runtime/comm/coding_switch.h"
#include "runtime/engine/groups.h"
#include "runtime/engine/training_state.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

// Transfers of one step on one rank whose error was measured, and those of them where it is so
// large that training suffers.
struct CodingErrors {
  int64_t measured = 0;
  int64_t large = 0;
};

// The sums of an axis since the engine was made.
struct AxisCoding {
  CodingErrors errors;
  comm::CodingReport sum;
};

struct TransferCounts {
  size_t tickets = 0;         // one past the largest of the rank's programs
  size_t coded_messages = 0;  // under way at once, at most, on the rank of the job with most
};

// Thread: the engine's. Nothing is allocated between set-up and end, but for an agreement (auto).
class TransferCoding {
 public:
  // `plan` and `state` must outlive it.
  TransferCoding(const v1::Plan& plan, const plan::Coordinates& at, const TrainingState& state,
                 const TransferCounts& counts);

  // Before a step's first transfer is issued, `updates` updates being done.
  void BeginStep(uint64_t step, int64_t updates);
  // Sums over rows and columns of the second moment, as far as this rank updates it, which
  // SumMoments makes: to be added up in place over the replicas where they update shares. Empty:
  // nothing needs them.
  std::span<double> moments() { return moments_; }
  // Inside a task, as what follows: SetBounds with the sums complete, the same on all ranks of the
  // data group.
  void SumMoments();
  void SetBounds();
  // How the transfer is coded; null: plain. Valid until the next call.
  const comm::Coding* Of(const v1::Instruction& instruction);
  // After the step's last transfer: what was measured of it. Inside a task, or after the last.
  void EndStep();
  // Mode auto: the ranks agree on the ways of the next steps. Collective over the data, the
  // pipeline and the tensor group. Blocks.
  absl::Status Agree(Groups& groups, tensor::Stream& stream, std::chrono::milliseconds deadline);

  // Of the last step.
  const CodingErrors& data_errors() const { return data_.step; }
  const CodingErrors& pipeline_errors() const { return pipeline_.step; }
  AxisCoding data() const { return data_.Sum(); }
  AxisCoding pipeline() const { return pipeline_.Sum(); }
  comm::CodingTotals* data_totals() { return &data_.totals; }
  comm::CodingTotals* pipeline_totals() { return &pipeline_.totals; }

 private:
  struct Axis {
    AxisCoding Sum() const;
    void Measure(const comm::CodingReport& report, double large);

    bool chooses = false;  // mode auto
    compress::Bound bound;
    CodingErrors step, all;
    comm::CodingTotals totals;
  };
  struct Bucket {
    comm::CodedRun run;  // empty where the plan does not mark it
    std::vector<comm::ScaleLine> lines;
    comm::CodingSwitch chooser;
    double seconds = 0;  // of this step's sums
    uint32_t sums = 0;   // of a step
  };
  // A parameter of a marked bucket.
  struct Tensor {
    size_t gradient = 0;    // of TrainingState
    size_t first_line = 0;  // of its bucket; one for each row
    size_t rows = 0, columns = 0;
    size_t sums = 0;          // place in moments_: of rows, then of columns
    size_t column_scale = 0;  // place in column_scales_
  };
  // Messages of one direction between two virtual stages. All ranks of the pipeline know all.
  struct Link {
    comm::CodingSwitch chooser;
    double seconds = 0;  // of this step's, on the rank that sends
  };

  void LayOutBuckets();
  std::span<double> RowSums(const Tensor& tensor);
  std::span<double> ColumnSums(const Tensor& tensor);
  void SetScales(const Tensor& tensor, double correction);

  const v1::Plan& plan_;
  const v1::Program& program_;
  const TrainingState& state_;
  Axis data_, pipeline_;
  std::vector<Bucket> buckets_;
  std::vector<Link> links_;  // by channel
  std::vector<Tensor> tensors_;
  std::vector<double> moments_;              // sums of the second moment
  std::vector<float> column_scales_;         // of the matrices
  std::vector<comm::CodingReport> reports_;  // by ticket
  comm::Coding coding_;
  bool codes_sums_ = false;
  bool as_bf16_ = false;   // the sums that are coded, else within bounds
  bool ready_ = false;     // to code the sums of this step: their bounds are known
  int64_t updates_ = 0;    // done before this step
  bool measures_ = false;  // errors, in this step
};

}  // namespace trireme::engine
