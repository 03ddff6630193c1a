// bench_comm --coded: AllReduce of a file of floats, each rank its own, coded against plain against
// MPI_Allreduce, interleaved in one run, and the results checked: the bound of the sum, and the
// same bits on all ranks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec.h"
#include "compress/stream_sum.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/coded_pieces.h"
#include "runtime/comm/coding.h"
#include "runtime/comm/coding_switch.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/mpi/mpi_api.h"
#include "runtime/comm/sum.h"

namespace trireme::comm {

struct CodedBenchOptions {
  std::string bound;               // abs:E or rms:E
  std::vector<std::string> files;  // rank r reads file r, from the first again where they end
  std::string
      tensors;  // "index elements" per line; each is a run with its own bound. Or all is one
  int rounds = 15;
  int64_t least_values = 4096;  // smaller tensors go plain
};

// One rank's side. Collective: all ranks make it and call Run.
class CodedBench {
 public:
  CodedBench(Communicator& comm, const CodedBenchOptions& options)
      : comm_(comm), options_(options), stream_(tensor::MakeInlineStream()) {}

  // The report, on rank 0; also printed as a table.
  absl::StatusOr<nlohmann::json> Run() {
    RETURN_IF_ERROR(Load());
    RETURN_IF_ERROR(MakeRuns());
    RETURN_IF_ERROR(Check());
    coding_.measure_error = false;
    for (int round = 0; round < options_.rounds; ++round) {
      RETURN_IF_ERROR(Round());
    }
    return Report();
  }

 private:
  enum Way { kCoded, kPlain, kSwitched, kMpi, kWays };
  static constexpr const char* kNames[] = {"coded", "plain", "auto", "mpi"};
  static constexpr std::chrono::milliseconds kDeadline{60000};

  absl::Status Load() {
    const std::string& path =
        options_.files[static_cast<size_t>(comm_.rank()) % options_.files.size()];
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) return absl::NotFoundError("cannot read " + path);
    const int64_t count = file.tellg() / static_cast<std::streamoff>(sizeof(float));
    file.seekg(0);
    values_.resize(static_cast<size_t>(count));
    file.read(reinterpret_cast<char*>(values_.data()),
              static_cast<std::streamsize>(values_.size() * sizeof(float)));
    int64_t counts[2] = {count, -count};
    MPI_Allreduce(MPI_IN_PLACE, counts, 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (counts[0] != count || counts[1] != -count || count == 0) {
      return absl::InvalidArgumentError("the ranks' files must be of one length, and not empty");
    }
    data_ = values_;
    return absl::OkStatus();
  }

  // The bound of a run, agreed: for rms by the mean square over all ranks.
  absl::StatusOr<double> BoundOf(int64_t begin, int64_t end) {
    ASSIGN_OR_RETURN(const compress::Bound asked, compress::ParseBound(options_.bound));
    if (asked.mode == compress::BoundMode::kAbsolute) return asked.value;
    if (asked.mode != compress::BoundMode::kRms) {
      return absl::InvalidArgumentError("--coded takes abs:E or rms:E");
    }
    double sums[2] = {0, static_cast<double>(end - begin)};
    for (int64_t i = begin; i < end; ++i) {
      const double x = static_cast<double>(values_[static_cast<size_t>(i)]);
      if (std::isfinite(x)) sums[0] += x * x;
    }
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return asked.value * std::sqrt(sums[0] / sums[1]);
  }

  absl::Status MakeRuns() {
    const auto count = std::ssize(values_);
    std::vector<int64_t> ends;
    std::ifstream tensors(options_.tensors);
    int64_t index = 0, elements = 0, end = 0;
    while (tensors >> index >> elements) ends.push_back(end += elements);
    if (ends.empty()) ends.push_back(count);
    if (ends.back() != count) {
      return absl::InvalidArgumentError(
          base::Text("the tensors have ", ends.back(), " elements, the file ", count));
    }
    int64_t begin = 0;
    for (const int64_t here : ends) {
      double bound = 0;
      if (here - begin >= options_.least_values) {
        ASSIGN_OR_RETURN(bound, BoundOf(begin, here));
      }
      runs_.push_back({begin, here, bound});
      begin = here;
    }
    coding_.runs = runs_;
    coding_.report = &report_;
    return absl::OkStatus();
  }

  absl::Status Reduce(bool coded) {
    coding_.enabled = coded;
    return comm_.WaitHost(comm_.AllReduce(data_.data(), std::ssize(data_), tensor::DType::kF32,
                                          ReduceOp::kSum, {*stream_, &coding_}),
                          kDeadline);
  }

  // The coded sum against one in f64, and its bits against rank 0's.
  absl::Status Check() {
    coding_.measure_error = true;
    RETURN_IF_ERROR(Reduce(true));
    measured_error_ = report_.largest_error;
    std::vector<double> exact(values_.begin(), values_.end());
    MPI_Allreduce(MPI_IN_PLACE, exact.data(), static_cast<int>(exact.size()), MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
    std::vector<double> magnitude;
    for (const float x : values_) magnitude.push_back(std::fabs(static_cast<double>(x)));
    MPI_Allreduce(MPI_IN_PLACE, magnitude.data(), static_cast<int>(magnitude.size()), MPI_DOUBLE,
                  MPI_SUM, MPI_COMM_WORLD);
    const double n = comm_.size();
    for (const CodedRun& run : runs_) {
      for (int64_t i = run.begin; i < run.end; ++i) {
        const size_t at = static_cast<size_t>(i);
        const double error = std::fabs(exact[at] - static_cast<double>(data_[at]));
        const double allowed = n * run.bound + (n + 1) * 0x1p-23 * (magnitude[at] + n * run.bound);
        if (!(error <= allowed)) ++violations_;
        if (run.bound > 0) worst_ = std::max(worst_, error / (n * run.bound));
      }
    }
    std::vector<float> first = data_;
    MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_FLOAT, 0, MPI_COMM_WORLD);
    if (std::memcmp(first.data(), data_.data(), first.size() * sizeof(float)) != 0) ++violations_;
    MPI_Allreduce(MPI_IN_PLACE, &violations_, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (violations_ == 0) return absl::OkStatus();
    return absl::InternalError(base::Text(violations_, " values outside the bound"));
  }

  absl::Status Round() {
    for (int way = 0; way < kWays; ++way) {
      std::copy(values_.begin(), values_.end(), data_.begin());
      MPI_Barrier(MPI_COMM_WORLD);
      const auto start = std::chrono::steady_clock::now();
      if (way == kMpi) {
        MPI_Allreduce(MPI_IN_PLACE, data_.data(), static_cast<int>(data_.size()), MPI_FLOAT,
                      MPI_SUM, MPI_COMM_WORLD);
      } else {
        RETURN_IF_ERROR(Reduce(way == kCoded || (way == kSwitched && switch_.coded())));
      }
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      double ms = took.count();
      MPI_Allreduce(MPI_IN_PLACE, &ms, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (way == kCoded) codec_ms_.push_back(static_cast<double>(report_.codec_ns) * 1e-6);
      if (way == kCoded) coded_report_ = report_;
      if (way == kSwitched) {
        // The switch's own trials are not what it costs once it has decided.
        const bool decided = agreed_ && !switch_.due();
        switch_.Record(ms * 1e-3);
        CodingSwitch* const all[] = {&switch_};
        agreed_ = agreed_ || switch_.due();
        Communicator* const group[] = {&comm_};
        RETURN_IF_ERROR(AgreeOnCoding(group, all, *stream_, kDeadline));
        if (!decided) continue;
      }
      times_[way].push_back(ms);
    }
    return absl::OkStatus();
  }

  // Adding two coded segments against two ways with floats, on this rank alone: the coded runs of
  // the file in pieces, and the same values of each run in another order. Beside memcpy.
  // Milliseconds for all of it, one way after the other, the fastest of some rounds.
  nlohmann::json SumTimes() {
    struct Piece {
      const float* x = nullptr;
      const float* y = nullptr;
      size_t count = 0;
      compress::Quantiser quantiser;
      std::vector<std::byte> coded_x, coded_y;
    };
    constexpr int64_t kPiece = 65536;
    std::vector<float> others = values_;
    std::vector<Piece> pieces;
    std::vector<std::byte> out(compress::MaxSegmentBytes(kPiece));
    const auto encode = [&](const Piece& piece, const float* values) {
      return compress::EncodeSegment({values, piece.count}, piece.quantiser, out);
    };
    for (const CodedRun& run : runs_) {
      std::rotate(others.begin() + run.begin, others.begin() + (run.begin + run.end) / 2,
                  others.begin() + run.end);
      for (PieceCursor cursor({&run, 1}, run.begin, run.end, kPiece); !cursor.AtEnd();) {
        const CodedPiece next = cursor.Next();
        if (!next.coded()) continue;
        Piece piece{&values_[static_cast<size_t>(next.begin)],
                    &others[static_cast<size_t>(next.begin)], next.count(), next.quantiser};
        piece.coded_x.assign(out.begin(), out.begin() + static_cast<long>(encode(piece, piece.x)));
        piece.coded_y.assign(out.begin(), out.begin() + static_cast<long>(encode(piece, piece.y)));
        pieces.push_back(std::move(piece));
      }
    }
    compress::SegmentAdder adder(2);
    std::vector<float> sum(kPiece), more(kPiece);
    const auto decode = [&](const Piece& piece, const std::vector<std::byte>& coded, float* to) {
      (void)compress::DecodeSegment(coded, piece.quantiser, {to, piece.count});
    };
    const auto target = [&](const Piece& piece) { return data_.data() + (piece.x - &values_[0]); };
    const auto least_of = [&](auto call) {
      double least = 1e9;
      for (int round = 0; round < 5; ++round) {
        const auto start = std::chrono::steady_clock::now();
        for (const Piece& piece : pieces) call(piece);
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - start;
        least = std::min(least, took.count());
      }
      return least;
    };
    const auto add = [](float* to, const Piece& piece, const float* x, const float* y) {
      Apply({to, x, y, static_cast<int64_t>(piece.count)});
    };
    return {{"memcpy", least_of([&](const Piece& p) {
               std::memcpy(target(p), p.x, p.count * sizeof(float));
             })},
            {"encode", least_of([&](const Piece& p) { (void)encode(p, p.x); })},
            {"decode", least_of([&](const Piece& p) { decode(p, p.coded_x, target(p)); })},
            {"add_floats", least_of([&](const Piece& p) { add(target(p), p, p.x, p.y); })},
            {"add_codes", least_of([&](const Piece& p) {
               const std::span<const std::byte> terms[] = {p.coded_x, p.coded_y};
               (void)adder.Add(terms, {p.count, p.quantiser}, out);
             })},
            {"decode_add_encode", least_of([&](const Piece& p) {
               decode(p, p.coded_x, sum.data());
               decode(p, p.coded_y, more.data());
               add(sum.data(), p, sum.data(), more.data());
               (void)encode(p, sum.data());
             })}};
  }

  static double Median(std::vector<double> times) {
    if (times.empty()) return 0;
    std::sort(times.begin(), times.end());
    return times[(times.size() - 1) / 2];
  }
  static double Least(const std::vector<double>& times) {
    return times.empty() ? 0 : *std::min_element(times.begin(), times.end());
  }

  nlohmann::json Report() {
    nlohmann::json report = {{"bench", "comm_coded"},
                             {"ranks", comm_.size()},
                             {"bytes", values_.size() * sizeof(float)},
                             {"bound", options_.bound},
                             {"runs", runs_.size()},
                             {"rounds", options_.rounds},
                             {"violations", violations_},
                             {"same_bits_on_all_ranks", violations_ == 0},
                             {"worst_error_of_stated_bound", worst_},
                             {"largest_own_error", measured_error_},
                             {"ratio", coded_report_.ratio()},
                             {"codec_ms", Median(codec_ms_)},
                             {"auto_is_coded", switch_.coded()}};
    for (int way = 0; way < kWays; ++way) {
      report[std::string(kNames[way]) + "_ms_min_median"] = {Least(times_[way]),
                                                             Median(times_[way])};
      if (comm_.rank() == 0) {
        std::printf("%-6s min %9.3f ms  median %9.3f ms\n", kNames[way], Least(times_[way]),
                    Median(times_[way]));
      }
    }
    report["sum_ms"] = SumTimes();
    const double coded = Median(times_[kCoded]);
    report["coded_to_plain"] = Median(times_[kPlain]) / coded;
    report["coded_to_mpi"] = Median(times_[kMpi]) / coded;
    report["auto_to_plain"] = Median(times_[kPlain]) / Median(times_[kSwitched]);
    return report;
  }

  Communicator& comm_;
  const CodedBenchOptions& options_;
  std::unique_ptr<tensor::Stream> stream_;
  std::vector<float> values_, data_;
  std::vector<CodedRun> runs_;
  Coding coding_;
  CodingReport report_, coded_report_;
  CodingSwitch switch_;
  bool agreed_ = false;
  double measured_error_ = 0;
  double worst_ = 0;
  int64_t violations_ = 0;
  std::vector<double> codec_ms_;
  std::vector<double> times_[kWays];
};

}  // namespace trireme::comm
