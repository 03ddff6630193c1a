// Collectives over MPI against Open MPI's own, interleaved in one run, beside the speed of memcpy
// measured in the same run.
//   mpirun -n 2 bench_comm --help
// All ranks run, rank 0 prints a table and one line of JSON. A time is the slowest rank's; cpu is
// the processor time of a rank, the median: waiting that spins counts, as the same cores compute.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/comm/mpi/mpi_api.h"
#include "runtime/comm/mpi/mpi_fabric.h"
#include "runtime/tensor/memory.h"
#include "tests/bench/coded_comm.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kDeadline{60000};

struct Options {
  size_t bytes = 0;
  size_t from_kib = 0;
  size_t largest_mib = 256;
  double seconds = 1;  // per line of the table
  size_t window_kib = 512;
  bool messages = false;
  CodedBenchOptions coded;
};

double CpuMs() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Times {
  std::vector<double> wall_ms;
  std::vector<double> cpu_ms;
};

struct Spread {
  double min_ms = 0;
  double median_ms = 0;
  double p99_ms = 0;
  double cpu_ms = 0;
};

Spread SpreadOf(Times times) {
  std::sort(times.wall_ms.begin(), times.wall_ms.end());
  std::sort(times.cpu_ms.begin(), times.cpu_ms.end());
  const size_t n = times.wall_ms.size();
  return {times.wall_ms.front(), times.wall_ms[(n - 1) / 2],
          times.wall_ms[std::min(n - 1, n * 99 / 100)], times.cpu_ms[(n - 1) / 2]};
}

class Bench {
 public:
  Bench(Communicator& comm, const Options& options, std::byte* data, std::byte* other)
      : comm_(comm),
        options_(options),
        data_(data),
        other_(other),
        stream_(tensor::MakeInlineStream()) {}

  // The time of `run`, by the slowest rank; starts together.
  void Time(const std::function<void()>& run, Times* times) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double cpu_before = CpuMs();
    const Clock::time_point start = Clock::now();
    run();
    double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    times->cpu_ms.push_back(CpuMs() - cpu_before);
    MPI_Allreduce(MPI_IN_PLACE, &ms, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    times->wall_ms.push_back(ms);
  }

  void Wait(Ticket ticket) {
    const absl::Status status = comm_.WaitHost(ticket, kDeadline);
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    AbortJob(1);
  }

  // Ours and theirs in turn, until the time is over.
  void Line(const char* name, size_t bytes, const std::function<void()>& ours,
            const std::function<void()>& theirs) {
    Times ours_ms, theirs_ms, copy_ms;
    ours();
    theirs();
    const Clock::time_point start = Clock::now();
    int more = 1;
    while (more != 0) {
      Time(ours, &ours_ms);
      Time(theirs, &theirs_ms);
      Time([&] { std::memcpy(other_, data_, bytes); }, &copy_ms);
      const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
      more = ours_ms.wall_ms.size() < 5 ||
                     (elapsed < options_.seconds && ours_ms.wall_ms.size() < 2000)
                 ? 1
                 : 0;
      MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (comm_.rank() != 0) return;
    const Spread own = SpreadOf(ours_ms), mpi = SpreadOf(theirs_ms), copy = SpreadOf(copy_ms);
    const double gbps = static_cast<double>(bytes) / own.median_ms * 1e-6;
    std::printf(
        "%-13s %9zu B  ours %8.4f %8.4f %8.4f cpu %8.4f ms  mpi %8.4f %8.4f %8.4f cpu %8.4f ms  "
        "x%5.2f (min x%5.2f)"
        "  %6.2f GB/s  memcpy %8.4f ms\n",
        name, bytes, own.min_ms, own.median_ms, own.p99_ms, own.cpu_ms, mpi.min_ms, mpi.median_ms,
        mpi.p99_ms, mpi.cpu_ms, mpi.median_ms / own.median_ms, mpi.min_ms / own.min_ms, gbps,
        copy.min_ms);
    std::fflush(stdout);
    lines_.push_back({{"collective", name},
                      {"bytes", bytes},
                      {"ours_min_median_p99_ms", {own.min_ms, own.median_ms, own.p99_ms}},
                      {"ours_cpu_ms", own.cpu_ms},
                      {"mpi_min_median_p99_ms", {mpi.min_ms, mpi.median_ms, mpi.p99_ms}},
                      {"mpi_cpu_ms", mpi.cpu_ms},
                      {"ratio_of_medians", mpi.median_ms / own.median_ms},
                      {"ratio_of_minima", mpi.min_ms / own.min_ms},
                      {"gb_per_s", gbps},
                      {"share_of_memcpy", copy.min_ms / own.min_ms}});
  }

  void Size(size_t bytes) {
    const int n = comm_.size();
    const int64_t count = static_cast<int64_t>(bytes / sizeof(float));
    const int mpi_count = static_cast<int>(count);
    std::vector<int64_t> offsets;
    std::vector<int> counts, starts;
    for (int r = 0; r <= n; ++r) offsets.push_back(count * r / n);
    for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
      counts.push_back(static_cast<int>(offsets[r + 1] - offsets[r]));
      starts.push_back(static_cast<int>(offsets[r]));
    }
    const Sharded sharded{data_, offsets, tensor::DType::kF32};
    Line(
        "AllReduce", bytes,
        [&] { Wait(comm_.AllReduce(data_, count, tensor::DType::kF32, ReduceOp::kSum, *stream_)); },
        [&] { MPI_Allreduce(data_, other_, mpi_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    Line(
        "ReduceScatter", bytes, [&] { Wait(comm_.ReduceScatter(sharded, *stream_)); },
        [&] {
          MPI_Reduce_scatter(data_, other_, counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        });
    Line(
        "AllGather", bytes, [&] { Wait(comm_.AllGather(sharded, *stream_)); },
        [&] {
          MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, data_, counts.data(), starts.data(), MPI_FLOAT,
                         MPI_COMM_WORLD);
        });
    const int right = (comm_.rank() + 1) % n, left = (comm_.rank() + n - 1) % n;
    Line(
        "SendRecv", bytes,
        [&] {
          const Ticket recv = comm_.Recv({other_, bytes}, left, 0, *stream_);
          Wait(comm_.Send({data_, bytes}, right, 0, *stream_));
          Wait(recv);
        },
        [&] {
          MPI_Sendrecv(data_, mpi_count, MPI_FLOAT, right, 1, other_, mpi_count, MPI_FLOAT, left, 1,
                       MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        });
  }

  const nlohmann::json& lines() const { return lines_; }

 private:
  Communicator& comm_;
  const Options& options_;
  std::byte* data_;
  std::byte* other_;
  std::unique_ptr<tensor::Stream> stream_;
  nlohmann::json lines_ = nlohmann::json::array();
};

int RunCoded(Fabric& fabric, const Options& options) {
  std::vector<int> ranks(static_cast<size_t>(fabric.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  absl::StatusOr<nlohmann::json> report = absl::InternalError("not run");
  {
    auto comm = fabric.Group(ranks, "bench");
    report = comm.ok() ? CodedBench(**comm, options.coded).Run() : comm.status();
  }
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.status().ToString().c_str());
    AbortJob(1);
  }
  if (fabric.rank() == 0) std::printf("%s\n", report->dump().c_str());
  const absl::Status closed = fabric.Close();
  if (!closed.ok()) std::fprintf(stderr, "%s\n", closed.ToString().c_str());
  return closed.ok() ? 0 : 1;
}

int Run(int argc, char** argv) {
  CLI::App app("Our collectives against Open MPI's, interleaved; a rank under mpirun.");
  Options options;
  app.add_option("--bytes", options.bytes, "this size alone; default: 16 bytes to --mib");
  app.add_option("--from-kib", options.from_kib, "smallest size")->capture_default_str();
  app.add_option("--mib", options.largest_mib, "largest size")->capture_default_str();
  app.add_option("--seconds", options.seconds, "per line of the table")->capture_default_str();
  app.add_option("--window-kib", options.window_kib, "shared window of each rank")
      ->capture_default_str();
  app.add_flag("--messages", options.messages, "messages only, no shared window");
  CLI::Option* coded =
      app.add_option("--coded", options.coded.bound,
                     "only AllReduce of --file, coded within this bound (abs:E or rms:E of each "
                     "tensor), against plain and MPI_Allreduce");
  coded->needs(
      app.add_option("--file", options.coded.files, "floats; several: rank r takes the r-th"));
  app.add_option("--tensors", options.coded.tensors,
                 "file of 'index elements' lines: the tensors in --file");
  app.add_option("--rounds", options.coded.rounds, "of --coded")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.messages) options.window_kib = 0;
  MpiOptions mpi;
  mpi.fabric.window_bytes = options.window_kib << 10;
  if (!options.coded.files.empty()) mpi.fabric.coding.collective_bytes = kCodingBytes;
  auto fabric = ConnectMpi(&argc, &argv, mpi);
  if (!fabric.ok()) {
    std::fprintf(stderr, "%s\n", fabric.status().ToString().c_str());
    AbortJob(1);
  }
  if (!options.coded.files.empty()) return RunCoded(**fabric, options);
  // Whole floats.
  const size_t largest = std::max<size_t>(
      (options.bytes > 0 ? options.bytes : options.largest_mib << 20) & ~size_t{3}, 4);
  auto data = tensor::HugeMemory::Map(largest, {.prefault_threads = 1});
  auto other = tensor::HugeMemory::Map(largest, {.prefault_threads = 1});
  std::vector<int> ranks(static_cast<size_t>((*fabric)->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto comm = (*fabric)->Group(ranks, "bench");
  if (!data.ok() || !other.ok() || !comm.ok()) {
    std::fprintf(stderr, "cannot start: %s %s %s\n", data.status().ToString().c_str(),
                 other.status().ToString().c_str(), comm.status().ToString().c_str());
    AbortJob(1);
  }
  {
    Bench bench(**comm, options, data->data(), other->data());
    for (size_t bytes = 16; bytes < largest; bytes *= 16) {
      if (options.bytes == 0 && bytes >= options.from_kib << 10) bench.Size(bytes);
    }
    bench.Size(largest);
    if ((*fabric)->rank() == 0) {
      const nlohmann::json report = {{"bench", "comm"},
                                     {"ranks", ranks.size()},
                                     {"window_kib", options.window_kib},
                                     {"lines", bench.lines()}};
      std::printf("%s\n", report.dump().c_str());
    }
  }
  comm->reset();
  const absl::Status closed = (*fabric)->Close();
  if (!closed.ok()) std::fprintf(stderr, "%s\n", closed.ToString().c_str());
  return closed.ok() ? 0 : 1;
}

}  // namespace
}  // namespace trireme::comm

int main(int argc, char** argv) { return trireme::comm::Run(argc, argv); }
