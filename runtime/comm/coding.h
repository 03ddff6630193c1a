// Coding of what a communicator moves: f32 values within an error bound, as coded segments
// (compress/stream_sum.h) that are added without being unpacked; or in half the bytes, as bf16. Off
// unless a call asks for it (OperationOptions::coding) of a group that has room for it
// (CodingRoom).
//
// Bits: the result of an element of a coded collective depends on the ranks' values of that element
// and the bound alone: the same on all ranks, in all runs, for every piece size and transport.
// Bound: each rank's value is changed by at most the bound of its run; a sum over n ranks by at
// most n times that, besides roundings to f32 (compress/stream_sum.h). NaN and infinities arrive.
// bf16: each rank's value x is rounded once, by at most 2^-8 |x|; the sum is made in f32, in the
// order of ranks, by the owner of its share. AllReduce rounds it once more, for the owner too, so
// that all have the same; ReduceScatter leaves it as it is.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <span>

#include "compress/codec.h"

namespace trireme::comm {

class CodingSwitch;

// The scale of the elements from `begin` to the next line's begin or the run's end: row *
// columns[i] of element begin + i, powers of two between 2^-64 and 2^63, so that scaling rounds
// nothing. Both live as long as the operation.
struct ScaleLine {
  int64_t begin = 0;
  float row = 1;
  const float* columns = nullptr;  // null: 1 each
};

enum class RunFormat : uint8_t { kWithinBound, kBf16 };

// Elements [begin, end) of a collective's data (counted from its `data`) and the absolute error
// bound of each rank's contribution: finite, the same on all ranks. 0, or too small for coding:
// they travel as plain floats, summed in the order of ranks.
struct CodedRun {
  int64_t begin = 0;
  int64_t end = 0;
  double bound = 0;
  // Not empty: the bound of an element is `bound` times its scale; the same on all ranks,
  // ascending, the first at or before `begin`. A finite element of more than 2^127 times its scale
  // arrives as infinite.
  std::span<const ScaleLine> lines;
  // kBf16: neither bound nor lines.
  RunFormat format = RunFormat::kWithinBound;
};

// What one call did on one rank.
struct CodingReport {
  bool coded = false;
  int64_t plain_bytes = 0;   // what this rank would have sent as plain floats by this algorithm
  int64_t coded_bytes = 0;   // what it sent
  int64_t codec_ns = 0;      // in the codec: coding, adding, decoding
  int64_t total_ns = 0;      // from the start of the transfer to its end on this rank
  double largest_error = 0;  // of this rank's own values; see Coding::measure_error
  // Of the own values that were measured, where finite: squares of the errors and of the values.
  double error_squares = 0;
  double value_squares = 0;

  // Not hidden behind the codec, nor waited for the start.
  int64_t wire_ns() const { return total_ns - codec_ns; }
  double ratio() const {
    return coded_bytes > 0 ? static_cast<double>(plain_bytes) / static_cast<double>(coded_bytes)
                           : 1;
  }
  // Root mean square of the error over that of the values; 0 where nothing was measured.
  double relative_error() const {
    return value_squares > 0 ? std::sqrt(error_squares / value_squares) : 0;
  }
};

// The sum over calls, and the largest error of any. Written by whichever thread drives the fabric;
// read by any.
class CodingTotals {
 public:
  void Add(const CodingReport& report);
  CodingReport sum() const;
  int64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> calls_{0}, plain_bytes_{0}, coded_bytes_{0}, codec_ns_{0}, total_ns_{0};
  std::atomic<double> largest_error_{0}, error_squares_{0}, value_squares_{0};
};

// How one operation is coded. All ranks of a collective, and both sides of a message, give the same
// (but for where reports go). Copied at issue; what it points to must outlive the operation, and is
// read from where the operation stands in its stream on: a task before it may still write scales.
struct Coding {
  // False: the operation goes the plain way, and only its times and bytes are reported.
  bool enabled = true;
  // Of collectives: ascending, not overlapping; elements outside all runs travel as plain floats.
  std::span<const CodedRun> runs;
  // Of Send, which resolves it on the values of the message; Recv ignores it.
  compress::Bound message_bound;
  // Most values of a piece, at least 1; groups of many ranks take smaller ones to bound their
  // memory.
  int64_t piece_values = 65536;
  // Errors are exact: own values are decoded and compared, about a fifth more work. Else
  // largest_error is the largest bound of the runs used, which the encoder checks value by value,
  // and there are no squares; of bf16 there is neither.
  bool measure_error = false;
  // Read by CodedFabric alone, at issue, in its mode kAuto.
  const CodingSwitch* chooser = nullptr;
  CodingReport* report = nullptr;  // overwritten when the operation is done
  CodingTotals* totals = nullptr;  // added to when it is done
};

}  // namespace trireme::comm
