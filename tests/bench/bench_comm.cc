// Collectives over MPI against Open MPI's own, interleaved in one run: its default, and for
// AllReduce also as tuned_mpi.h sets it. Ours twice: of buffers in node memory, and of private
// ones.
//   mpirun -n 2 bench_comm --help
// All ranks run, rank 0 prints a table and one line of JSON. A time is the slowest rank's; cpu is
// the processor time of a rank, the median: waiting that spins counts, as the same cores compute.
//
// Beside them stands the limit: all ranks copy as many bytes at once, past the caches where these
// do not hold them. Two ranks so make four passes over the bytes, two that read and two that write;
// and that is what an AllReduce of two ranks of a machine cannot do without: both buffers must be
// read, and both written. The other collectives of two ranks can do with half as much.
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
#include "runtime/comm/node_memory.h"
#include "runtime/comm/stream_copy.h"
#include "runtime/tensor/memory.h"
#include "tests/bench/coded_comm.h"
#include "tests/bench/tuned_mpi.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kDeadline{60000};
constexpr size_t kBeyondCaches = 64 << 20;

struct Options {
  size_t bytes = 0;
  size_t from_kib = 0;
  size_t largest_mib = 256;
  double seconds = 1;  // per line of the table
  size_t window_kib = 512;
  bool messages = false;
  bool without_node_memory = false;
  bool bf16 = false;
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

void CachedCopy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

// One of those that are measured in turn.
struct Way {
  const char* name = "";
  std::function<void()> run;
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

// Of one size for all. MPI has the private ones.
struct Buffers {
  std::byte* node = nullptr;
  std::byte* data = nullptr;
  std::byte* other = nullptr;
};

class Bench {
 public:
  Bench(Communicator& comm, const Options& options, const Buffers& buffers)
      : comm_(comm),
        options_(options),
        buffers_(buffers),
        tuned_(TunedWorld()),
        stream_(tensor::MakeInlineStream()) {}
  ~Bench() {
    if (tuned_ != MPI_COMM_NULL) MPI_Comm_free(&tuned_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

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

  // All in turn, until the time is over. Ours stand first.
  void Line(const char* name, size_t bytes, std::vector<Way> ways) {
    ways.push_back({"limit", [&] {
                      const auto copy = bytes < kStreamCopyBytes ? CachedCopy : StreamCopy;
                      copy(buffers_.other, buffers_.data, bytes);
                    }});
    for (const Way& way : ways) way.run();
    std::vector<Times> times(ways.size());
    const Clock::time_point start = Clock::now();
    int more = 1;
    while (more != 0) {
      for (size_t w = 0; w < ways.size(); ++w) {
        // Twice before: each finds the caches as it leaves them itself, and not the one before it,
        // which may work on the same buffer.
        for (int warm = 0; warm < 2 && bytes < kBeyondCaches; ++warm) ways[w].run();
        Time(ways[w].run, &times[w]);
      }
      const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
      const size_t rounds = times[0].wall_ms.size();
      more = rounds < 5 || (elapsed < options_.seconds && rounds < 2000) ? 1 : 0;
      MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (comm_.rank() != 0) return;
    std::printf("%-13s %9zu B ", name, bytes);
    nlohmann::json line = {{"collective", name}, {"bytes", bytes}};
    const Spread ours = SpreadOf(times[0]);
    for (size_t w = 0; w < ways.size(); ++w) {
      const Spread one = SpreadOf(times[w]);
      std::printf(" %s %8.4f %8.4f %8.4f cpu %8.4f ms", ways[w].name, one.min_ms, one.median_ms,
                  one.p99_ms, one.cpu_ms);
      nlohmann::json& way = line[ways[w].name];
      way = {{"min_median_p99_ms", {one.min_ms, one.median_ms, one.p99_ms}},
             {"cpu_ms", one.cpu_ms}};
      if (w == 0) continue;
      std::printf(" x%5.2f (min x%5.2f)", one.median_ms / ours.median_ms, one.min_ms / ours.min_ms);
      way["ratio_of_medians"] = one.median_ms / ours.median_ms;
      way["ratio_of_minima"] = one.min_ms / ours.min_ms;
    }
    std::printf("\n");
    std::fflush(stdout);
    lines_.push_back(std::move(line));
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
    std::byte* const data = buffers_.data;
    std::byte* const other = buffers_.other;
    // In node memory and not.
    const auto both = [&](const std::function<Ticket(std::byte*)>& issue) {
      std::vector<Way> ways = {{"ours", [=, this] { Wait(issue(buffers_.node)); }}};
      if (buffers_.node != data) ways.push_back({"private", [=, this] { Wait(issue(data)); }});
      return ways;
    };
    std::vector<Way> ways = both([&](std::byte* at) {
      return comm_.AllReduce(at, count, tensor::DType::kF32, ReduceOp::kSum, *stream_);
    });
    const CodedRun run{.begin = 0, .end = count, .format = RunFormat::kBf16};
    Coding half;
    half.runs = {&run, 1};
    if (options_.bf16) {
      ways.push_back({"bf16", [&] {
                        Wait(comm_.AllReduce(data, count, tensor::DType::kF32, ReduceOp::kSum,
                                             {*stream_, &half}));
                      }});
    }
    const auto reduce = [&](MPI_Comm comm) {
      MPI_Allreduce(data, other, mpi_count, MPI_FLOAT, MPI_SUM, comm);
    };
    ways.push_back({"mpi", [&] { reduce(MPI_COMM_WORLD); }});
    if (tuned_ != MPI_COMM_NULL) ways.push_back({"tuned", [&] { reduce(tuned_); }});
    Line("AllReduce", bytes, std::move(ways));

    ways = both([&](std::byte* at) {
      return comm_.ReduceScatter({at, offsets, tensor::DType::kF32}, *stream_);
    });
    ways.push_back({"mpi", [&] {
                      MPI_Reduce_scatter(data, other, counts.data(), MPI_FLOAT, MPI_SUM,
                                         MPI_COMM_WORLD);
                    }});
    Line("ReduceScatter", bytes, std::move(ways));

    ways = both([&](std::byte* at) {
      return comm_.AllGather({at, offsets, tensor::DType::kF32}, *stream_);
    });
    ways.push_back({"mpi", [&] {
                      MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, data, counts.data(), starts.data(),
                                     MPI_FLOAT, MPI_COMM_WORLD);
                    }});
    Line("AllGather", bytes, std::move(ways));

    const int right = (comm_.rank() + 1) % n, left = (comm_.rank() + n - 1) % n;
    Line("SendRecv", bytes,
         {{"ours",
           [&] {
             const Ticket recv = comm_.Recv({other, bytes}, left, 0, *stream_);
             Wait(comm_.Send({data, bytes}, right, 0, *stream_));
             Wait(recv);
           }},
          {"mpi", [&] {
             MPI_Sendrecv(data, mpi_count, MPI_FLOAT, right, 1, other, mpi_count, MPI_FLOAT, left,
                          1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
           }}});
  }

  const nlohmann::json& lines() const { return lines_; }

 private:
  Communicator& comm_;
  const Options& options_;
  const Buffers buffers_;
  MPI_Comm tuned_;
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
  app.add_flag("--no-node-memory", options.without_node_memory, "none is made; all is private");
  app.add_flag("--bf16", options.bf16, "AllReduce also with its f32 values travelling as bf16");
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
  if (options.bf16 || !options.coded.files.empty()) {
    mpi.fabric.coding.collective_bytes = kCodingBytes;
  }
  AllowTuning();
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
  absl::StatusOr<std::shared_ptr<NodeMemory>> node(nullptr);
  if (!options.without_node_memory) node = (*fabric)->Allocate(largest);
  std::vector<int> ranks(static_cast<size_t>((*fabric)->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto comm = (*fabric)->Group(ranks, "bench");
  if (!data.ok() || !other.ok() || !node.ok() || !comm.ok()) {
    for (const absl::Status& status : {data.status(), other.status(), node.status(), comm.status()})
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
    AbortJob(1);
  }
  {
    std::byte* const shared = *node != nullptr ? (*node)->own().data() : data->data();
    Bench bench(**comm, options, {shared, data->data(), other->data()});
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
