// What a mount that hangs under one job of ten costs the others: p99 of Submit, Get, List and of an
// agent's report, quiet and while callers ask for the hung one all the time, in turns.
// Usage: bench_hung_mount TRIREMED (as root, with /dev/fuse)
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/check.h"
#include "tests/coordinator/daemon/ten_jobs.h"

namespace trireme::coordinator {
namespace {

constexpr int kRounds = 6;
constexpr int kCalls = 50;  // of each kind in each round

using Samples = std::map<std::string, std::vector<double>>;  // in ms, by kind

double Ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Measure(std::vector<double>& samples, const std::function<bool()>& call) {
  const double from = Ms();
  TRIREME_CHECK(call());
  samples.push_back(Ms() - from);
}

// The kinds in turns too.
void Round(TenJobs& jobs, client::Client& client, Samples& samples) {
  for (int i = 0; i < kCalls; ++i) {
    const uint64_t other = 1 + static_cast<uint64_t>(i) % (TenJobs::kJobs - 1);
    Measure(samples["Submit"], [&] { return jobs.Submit(client, other).ok(); });
    Measure(samples["Get"], [&] {
      v1::GetRequest request;
      request.set_job_id(other);
      return client.Call(request).ok();
    });
    Measure(samples["List"], [&] { return client.Call(v1::ListRequest()).ok(); });
    Measure(samples["report"], [&] { return jobs.agent().Report(); });
  }
}

// Who asks for what hangs, without an end.
class Hammer {
 public:
  explicit Hammer(TenJobs& jobs) {
    for (int i = 0; i < 6; ++i) {
      threads_.emplace_back([this, &jobs, i] {
        const auto client = jobs.Connect();
        v1::ListFilesRequest files;
        files.set_job_id(TenJobs::kJobs);
        while (!over_) {
          const absl::Status end =
              i % 2 == 0 ? client->Call(files).status() : jobs.Preview(*client, TenJobs::kJobs);
          TRIREME_CHECK(!end.ok() || over_);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      });
    }
  }
  void End() { over_ = true; }

 private:
  std::atomic<bool> over_{false};
  std::vector<std::jthread> threads_;
};

double P99(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(0.99 * static_cast<double>(samples.size() - 1))];
}

double Median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

int Main(const std::string& program) {
  if (!MayHang()) {
    fmt::print(stderr, "bench_hung_mount: only root with /dev/fuse may mount what hangs\n");
    return 1;
  }
  TenJobs jobs(program);
  const auto client = jobs.Connect();
  Samples warm, quiet, hung;
  Round(jobs, *client, warm);
  for (int round = 0; round < kRounds; ++round) {
    Round(jobs, *client, quiet);
    jobs.Hang();
    TRIREME_CHECK(jobs.hangs());
    Hammer hammer(jobs);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    Round(jobs, *client, hung);
    hammer.End();
    jobs.Answer();
  }
  for (const auto& [kind, samples] : quiet) {
    fmt::print(
        "{:<8} {} calls each  p50 {:7.3f} ms quiet {:7.3f} ms hung  p99 {:7.3f} ms quiet "
        "{:7.3f} ms hung  ratio {:.2f}\n",
        kind, samples.size(), Median(samples), Median(hung[kind]), P99(samples), P99(hung[kind]),
        P99(hung[kind]) / P99(samples));
  }
  return 0;
}

}  // namespace
}  // namespace trireme::coordinator

int main(int argc, char** argv) {
  if (argc == 2) return trireme::coordinator::Main(argv[1]);
  fmt::print(stderr, "usage: bench_hung_mount TRIREMED\n");
  return 2;
}
