// The cases of coded collectives and messages that every backend must pass. Header only, so that
// the program under mpirun runs the very same ones.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/comm/coding.h"
#include "tests/runtime/comm/cases.h"

namespace trireme::comm {

// Gaussian-like numbers of both signs, some zeros, and (`hard`) what cannot be coded: NaN,
// infinities, denormals, values near the largest float.
inline std::vector<float> CodedValues(int rank, int64_t count, bool hard) {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = 88172645463325252ULL + static_cast<uint64_t>(rank) * 7919;
  for (float& value : values) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const auto a = static_cast<float>(static_cast<int64_t>(state & 0xffff) - 0x8000);
    const auto b = static_cast<float>(static_cast<int64_t>(state >> 16 & 0xffff) - 0x8000);
    value = state >> 60 < 3 ? 0 : a * b * 0x1p-30F;
    if (!hard || (state >> 40 & 0xff) != 0) continue;
    switch (state >> 32 & 7) {
      case 0:
        value = std::numeric_limits<float>::quiet_NaN();
        break;
      case 1:
        value = std::numeric_limits<float>::infinity();
        break;
      case 2:
        value = -std::numeric_limits<float>::infinity();
        break;
      case 3:
        value = 3e38F;
        break;
      case 4:
        value = 1e-42F;
        break;
      case 5:
        value = -0.0F;
        break;
      default:
        value *= 1e6F;
    }
  }
  return values;
}

// Runs of all kinds over `count` elements: coded, plain, empty, with a gap.
inline std::vector<CodedRun> SomeRuns(int64_t count) {
  const auto part = [count](int64_t i) { return count * i / 10; };
  return {{0, part(4), 0.01},
          {part(4), part(4), 0.5},
          {part(4), part(5), 0},
          {part(6), part(9), 0.1},
          {part(9), count, 1e-4}};
}

inline double BoundAt(const std::vector<CodedRun>& runs, int64_t i) {
  for (const CodedRun& run : runs) {
    if (i >= run.begin && i < run.end) return run.bound;
  }
  return 0;
}

// The stated bound of the sum of `terms` (compress/stream_sum.h), without the codec's arithmetic.
inline bool SumHolds(const std::vector<std::vector<float>>& terms, size_t i, float sum,
                     double bound) {
  const auto n = static_cast<double>(terms.size());
  double exact = 0, magnitude = n * bound;
  for (const std::vector<float>& term : terms) {
    exact += static_cast<double>(term[i]);
    magnitude += std::fabs(static_cast<double>(term[i]));
  }
  if (std::isnan(exact)) return std::isnan(sum);
  if (std::isinf(exact)) return static_cast<double>(sum) == exact;
  if (magnitude > 3e38) return true;  // may overflow on the way
  // Plain elements are summed in f32, each addition rounding.
  return std::fabs(exact - static_cast<double>(sum)) <= n * bound + (n + 1) * 0x1p-23 * magnitude;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline absl::Status ExpectSameOnAllRanks(Communicator& comm, const std::vector<float>& values) {
  auto stream = tensor::MakeInlineStream();
  std::vector<float> of_first = values;
  RETURN_IF_ERROR(comm.WaitHost(
      comm.Broadcast(std::as_writable_bytes(std::span(of_first)), 0, *stream), kDeadline));
  return Expect(SameBits(of_first, values), "bits differ by rank");
}

struct CodedCase {
  int64_t count = 0;
  bool hard = false;
  int64_t piece_values = 65536;
};

// One coded AllReduce; `*sum` gets the result.
inline absl::Status CodedAllReduce(Communicator& comm, const CodedCase& what,
                                   std::vector<float>* sum) {
  auto stream = tensor::MakeInlineStream();
  const std::vector<CodedRun> runs = SomeRuns(what.count);
  CodingReport report;
  CodingTotals totals;
  Coding coding;
  coding.runs = runs;
  coding.piece_values = what.piece_values;
  coding.measure_error = true;
  coding.report = &report;
  coding.totals = &totals;
  *sum = CodedValues(comm.rank(), what.count, what.hard);
  RETURN_IF_ERROR(comm.WaitHost(comm.AllReduce(sum->data(), what.count, tensor::DType::kF32,
                                               ReduceOp::kSum, {*stream, &coding}),
                                kDeadline));
  if (comm.size() == 1) return absl::OkStatus();
  RETURN_IF_ERROR(Expect(report.largest_error <= 0.1, "an error above the largest bound"));
  RETURN_IF_ERROR(Expect(what.count < 1000 || report.largest_error > 0.05, "no error measured"));
  RETURN_IF_ERROR(Expect(totals.calls() == 1 && totals.sum().coded_bytes == report.coded_bytes,
                         "totals are not the sum of the reports"));
  return Expect(
      what.count < 100000 || what.hard || what.piece_values < 1000 || report.ratio() > 1.5,
      "nothing was saved");
}

// Against the exact sum, and bit for bit: on all ranks, for all sizes of pieces, by AllReduce and
// by ReduceScatter then AllGather of what is already codes.
inline absl::Status CheckCodedSums(Communicator& comm, int64_t count, bool hard) {
  std::vector<std::vector<float>> terms;
  for (int r = 0; r < comm.size(); ++r) terms.push_back(CodedValues(r, count, hard));
  const std::vector<CodedRun> runs = SomeRuns(count);
  std::vector<float> sum;
  RETURN_IF_ERROR(CodedAllReduce(comm, {count, hard}, &sum));
  if (comm.size() == 1) return Expect(SameBits(sum, terms[0]), "a rank alone is not coded");
  for (size_t i = 0; i < sum.size(); ++i) {
    RETURN_IF_ERROR(Expect(SumHolds(terms, i, sum[i], BoundAt(runs, static_cast<int64_t>(i))),
                           "the bound of a coded sum"));
  }
  RETURN_IF_ERROR(ExpectSameOnAllRanks(comm, sum));
  for (const int64_t piece_values : {4096, 777}) {
    std::vector<float> again;
    RETURN_IF_ERROR(CodedAllReduce(comm, {count, hard, piece_values}, &again));
    RETURN_IF_ERROR(Expect(SameBits(sum, again), "bits differ by the size of pieces"));
  }

  auto stream = tensor::MakeInlineStream();
  const std::vector<int64_t> offsets = UnevenOffsets(comm.size(), count);
  Coding coding;
  coding.runs = runs;
  const size_t r = static_cast<size_t>(comm.rank());
  const auto begin = static_cast<size_t>(offsets[r] - 3);
  const auto own = static_cast<size_t>(offsets[r + 1] - offsets[r]);
  for (const bool apart : {false, true}) {
    std::vector<float> data = terms[r], share(own);
    const Sharded sharded{data.data(), offsets, tensor::DType::kF32,
                          apart ? share.data() : nullptr};
    RETURN_IF_ERROR(comm.WaitHost(comm.ReduceScatter(sharded, {*stream, &coding}), kDeadline));
    const float* result = apart ? share.data() : data.data() + begin;
    RETURN_IF_ERROR(Expect(own == 0 || std::memcmp(result, &sum[begin], own * sizeof(float)) == 0,
                           "ReduceScatter and AllReduce differ"));
    RETURN_IF_ERROR(comm.WaitHost(comm.AllGather(sharded, *stream), kDeadline));
    RETURN_IF_ERROR(Expect(SameBits(data, sum), "plain AllGather of a coded ReduceScatter"));
  }
  return absl::OkStatus();
}

inline absl::Status CheckCodedGather(Communicator& comm, int64_t count) {
  auto stream = tensor::MakeInlineStream();
  const std::vector<int64_t> offsets = UnevenOffsets(comm.size(), count);
  const std::vector<CodedRun> runs = SomeRuns(count);
  std::vector<float> first;
  const size_t r = static_cast<size_t>(comm.rank());
  // Pieces of two sizes, the own share in place and apart.
  for (const bool apart : {false, true}) {
    std::vector<float> data(static_cast<size_t>(count), 5);
    std::vector<float> own = CodedValues(comm.rank(), count, true);
    float* const share = own.data() + offsets[r] - 3;
    if (!apart) std::copy_n(share, offsets[r + 1] - offsets[r], data.data() + offsets[r] - 3);
    Coding coding;
    coding.runs = runs;
    coding.piece_values = apart ? 500 : 65536;
    const Ticket ticket = comm.AllGather(
        {data.data(), offsets, tensor::DType::kF32, apart ? share : nullptr}, {*stream, &coding});
    RETURN_IF_ERROR(comm.WaitHost(ticket, kDeadline));
    RETURN_IF_ERROR(ExpectSameOnAllRanks(comm, data));
    for (int q = 0; q < comm.size(); ++q) {
      const std::vector<std::vector<float>> theirs = {CodedValues(q, count, true)};
      for (int64_t i = offsets[static_cast<size_t>(q)] - 3;
           i < offsets[static_cast<size_t>(q) + 1] - 3; ++i) {
        const size_t at = static_cast<size_t>(i);
        RETURN_IF_ERROR(
            Expect(SumHolds(theirs, at, data[at], BoundAt(runs, i)), "the bound of an AllGather"));
      }
    }
    if (first.empty()) first = data;
    RETURN_IF_ERROR(Expect(SameBits(first, data), "AllGather: bits differ by pieces or place"));
  }
  return absl::OkStatus();
}

// To the right and from the left; on one channel a coded, a plain and a coded one in flight
// together, on another only a plain one.
inline absl::Status CheckCodedMessages(Communicator& comm, int64_t count) {
  auto stream = tensor::MakeInlineStream();
  const int n = comm.size();
  const int right = (comm.rank() + 1) % n, left = (comm.rank() + n - 1) % n;
  for (const compress::Bound bound : {compress::Bound{compress::BoundMode::kAbsolute, 0.01},
                                      compress::Bound{compress::BoundMode::kRms, 0.1},
                                      compress::Bound{compress::BoundMode::kRange, 1e-3},
                                      compress::Bound{compress::BoundMode::kAbsolute, 0}}) {
    const std::vector<float> mine = CodedValues(comm.rank(), count, false);
    const std::vector<float> zeros(static_cast<size_t>(count), 0.0F);
    std::vector<std::vector<float>> got(4, std::vector<float>(static_cast<size_t>(count), 9));
    CodingReport report;
    Coding coding;
    coding.message_bound = bound;
    coding.piece_values = 10000;
    coding.measure_error = true;
    coding.report = &report;
    std::vector<Ticket> tickets;
    const auto out = [](const std::vector<float>& values) {
      return std::as_bytes(std::span(values));
    };
    const auto in = [](std::vector<float>& values) {
      return std::as_writable_bytes(std::span(values));
    };
    for (const int k : {0, 1, 2}) {
      tickets.push_back(
          comm.Send(out(k == 2 ? zeros : mine), right, 3, {*stream, k == 1 ? nullptr : &coding}));
      if (k == 0) coding.report = nullptr;
    }
    tickets.push_back(comm.Send(out(mine), right, 4, *stream));
    for (const size_t k : {3, 0, 1, 2}) {
      tickets.push_back(comm.Recv(in(got[k]), left, k == 3 ? 4 : 3,
                                  {*stream, k == 0 || k == 2 ? &coding : nullptr}));
    }
    for (const Ticket ticket : tickets) RETURN_IF_ERROR(comm.WaitHost(ticket, kDeadline));
    const std::vector<float> sent = CodedValues(left, count, false);
    RETURN_IF_ERROR(Expect(SameBits(got[1], sent) && SameBits(got[3], sent), "plain messages"));
    RETURN_IF_ERROR(Expect(SameBits(got[2], zeros), "a message of zeros"));
    double rms = 0, largest = 0;
    for (const float value : sent) rms += static_cast<double>(value) * static_cast<double>(value);
    rms = std::sqrt(rms / static_cast<double>(std::max<int64_t>(count, 1)));
    for (size_t i = 0; i < sent.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(sent[i]) - got[0][i]));
    }
    const double scale = bound.mode == compress::BoundMode::kAbsolute ? 1
                         : bound.mode == compress::BoundMode::kRms    ? rms
                                                                      : 2;
    RETURN_IF_ERROR(Expect(largest <= bound.value * scale * (1 + 1e-9), "a message's bound"));
    RETURN_IF_ERROR(Expect(
        count < 1000 || bound.value == 0 || (report.ratio() > 1.5 && report.largest_error > 0),
        "a message's report"));
  }
  return absl::OkStatus();
}

inline absl::Status CheckCoded(Communicator& comm) {
  for (const int64_t count : {0, 1, 300, 5000, 200003}) {
    for (const bool hard : {false, true}) {
      RETURN_IF_ERROR(CheckCodedSums(comm, count, hard));
    }
    RETURN_IF_ERROR(CheckCodedGather(comm, count));
    RETURN_IF_ERROR(CheckCodedMessages(comm, count));
  }
  return absl::OkStatus();
}

}  // namespace trireme::comm
