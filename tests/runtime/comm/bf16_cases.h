// The cases of sums and gathers that travel as bf16, which every backend must pass: to the bit what
// plain loops make of the same values. Header only, so that the program under mpirun runs the very
// same ones.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/comm/coding.h"
#include "tests/runtime/comm/coded_cases.h"

namespace trireme::comm {

// Two runs of bf16, before and behind elements that travel as they are.
inline std::vector<CodedRun> Bf16Runs(int64_t count) {
  const auto part = [count](int64_t i) { return count * i / 10; };
  return {{.begin = 0, .end = part(3), .format = RunFormat::kBf16},
          {.begin = part(3), .end = part(4)},
          {.begin = part(5), .end = count, .format = RunFormat::kBf16}};
}

inline float RoundedOnce(float value) { return static_cast<float>(tensor::BFloat16(value)); }

// What element i of a sum of `terms` must be: each term rounded, the sum made in f32 in the order
// of ranks, and rounded once more where it is sent on.
inline float Bf16Sum(const std::vector<std::vector<float>>& terms, size_t i, bool sent_on) {
  const auto count = static_cast<int64_t>(terms[0].size());
  bool bf16 = false;
  for (const CodedRun& run : Bf16Runs(count)) {
    const auto at = static_cast<int64_t>(i);
    bf16 = bf16 || (run.format == RunFormat::kBf16 && at >= run.begin && at < run.end);
  }
  const auto term = [&](size_t rank) {
    return bf16 ? RoundedOnce(terms[rank][i]) : terms[rank][i];
  };
  float sum = term(0);
  for (size_t rank = 1; rank < terms.size(); ++rank) sum += term(rank);
  return bf16 && sent_on ? RoundedOnce(sum) : sum;
}

// Of NaN any will do; of zero the sign counts.
inline bool SameNumber(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b));
}

inline absl::Status CheckBf16AllReduce(Communicator& comm,
                                       const std::vector<std::vector<float>>& terms,
                                       int64_t piece_values) {
  auto stream = tensor::MakeInlineStream();
  const auto count = std::ssize(terms[0]);
  const std::vector<CodedRun> runs = Bf16Runs(count);
  CodingReport report;
  Coding coding;
  coding.runs = runs;
  coding.piece_values = piece_values;
  coding.measure_error = piece_values % 2 == 1;
  coding.report = &report;
  std::vector<float> data = terms[static_cast<size_t>(comm.rank())];
  RETURN_IF_ERROR(comm.WaitHost(
      comm.AllReduce(data.data(), count, tensor::DType::kF32, ReduceOp::kSum, {*stream, &coding}),
      kDeadline));
  for (size_t i = 0; i < data.size(); ++i) {
    RETURN_IF_ERROR(Expect(SameNumber(data[i], Bf16Sum(terms, i, true)), "an AllReduce in bf16"));
  }
  RETURN_IF_ERROR(ExpectSameOnAllRanks(comm, data));
  // The two thirds of plain bytes that four fifths of the elements at half are, give or take which
  // of them the own share has.
  return Expect(count < 10000 || (report.coded && report.ratio() > 1.2 && report.ratio() < 1.85 &&
                                  coding.measure_error == (report.value_squares > 0)),
                "the report of an AllReduce in bf16");
}

inline absl::Status CheckBf16Shares(Communicator& comm,
                                    const std::vector<std::vector<float>>& terms) {
  auto stream = tensor::MakeInlineStream();
  const auto count = std::ssize(terms[0]);
  const std::vector<CodedRun> runs = Bf16Runs(count);
  const std::vector<int64_t> offsets = UnevenOffsets(comm.size(), count);
  Coding coding;
  coding.runs = runs;
  const auto r = static_cast<size_t>(comm.rank());
  const auto begin = static_cast<size_t>(offsets[r] - 3),
             end = static_cast<size_t>(offsets[r + 1] - 3);
  for (const bool apart : {false, true}) {
    std::vector<float> data = terms[r], share(end - begin);
    const Sharded sharded{data.data(), offsets, tensor::DType::kF32,
                          apart ? share.data() : nullptr};
    RETURN_IF_ERROR(comm.WaitHost(comm.ReduceScatter(sharded, {*stream, &coding}), kDeadline));
    const float* const result = apart ? share.data() : data.data() + begin;
    for (size_t i = begin; i < end; ++i) {
      RETURN_IF_ERROR(Expect(SameNumber(result[i - begin], Bf16Sum(terms, i, false)),
                             "a ReduceScatter in bf16"));
    }
    // Sums sent on in bf16 are those of AllReduce.
    RETURN_IF_ERROR(comm.WaitHost(comm.AllGather(sharded, {*stream, &coding}), kDeadline));
    for (size_t i = 0; i < data.size(); ++i) {
      RETURN_IF_ERROR(Expect(SameNumber(data[i], Bf16Sum(terms, i, true)), "an AllGather in bf16"));
    }
    RETURN_IF_ERROR(ExpectSameOnAllRanks(comm, data));
  }
  return absl::OkStatus();
}

inline absl::Status CheckBf16Transfer(Communicator& comm, int64_t count) {
  if (comm.size() == 1) return absl::OkStatus();
  std::vector<std::vector<float>> terms;
  for (int r = 0; r < comm.size(); ++r) terms.push_back(CodedValues(r, count, true));
  for (const int64_t piece_values : {65536, 777}) {
    RETURN_IF_ERROR(CheckBf16AllReduce(comm, terms, piece_values));
  }
  return CheckBf16Shares(comm, terms);
}

}  // namespace trireme::comm
