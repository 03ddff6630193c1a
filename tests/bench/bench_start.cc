// The start of a coordinator with a store of years: until it is ready, and what follows in the
// background.
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "coordinator/reconciler/reconciler.h"
#include "runtime/base/check.h"

namespace trireme::coordinator {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kNow = 1'800'000'000'000'000'000;

double MsOf(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}
void Line(const char* what, double ms) { fmt::print("{:58} {:10.1f} ms\n", what, ms); }
double MiB() { return static_cast<double>(mallinfo2().uordblks) / (1 << 20); }

v1::Job JobOf(uint64_t id, v1::JobState state) {
  v1::Job job;
  job.set_id(id);
  job.set_name(fmt::format("job-{}", id));
  job.set_owner("ann");
  // A resolved spec with its model's configuration has about this size.
  job.mutable_spec()->mutable_model()->set_config_path(std::string(600, 'c'));
  job.mutable_resources()->set_ranks(1 + id % 20);
  job.mutable_resources()->set_cpus_per_rank(4);
  job.set_submitted_unix_ns(kNow + static_cast<int64_t>(id));
  job.mutable_status()->set_state(state);
  job.mutable_status()->set_attempt(state == v1::JOB_PENDING ? 0 : 1);
  job.mutable_status()->set_changed_unix_ns(kNow);
  job.set_run_folder(fmt::format("/jobs/{}", id));
  return job;
}

void Fill(const std::string& path, uint64_t ended, uint64_t queued) {
  auto store = *JobStore::Open(path);
  constexpr uint64_t kTogether = 1000;
  for (uint64_t first = 1; first <= ended + queued; first += kTogether) {
    Change change;
    for (uint64_t id = first; id < first + kTogether && id <= ended + queued; ++id) {
      change.jobs.push_back(JobOf(id, id <= ended ? v1::JOB_COMPLETED : v1::JOB_PENDING));
      change.request_ids.push_back(fmt::format("request-{}", id));
      for (int i = 0; i < (id <= ended ? 6 : 1); ++i) {
        v1::Event& event = change.events.emplace_back();
        event.set_time_unix_ns(kNow);
        event.set_job_id(id);
        event.mutable_state_changed()->set_to(v1::JOB_RUNNING);
        event.mutable_state_changed()->set_reason("every rank is at work");
      }
    }
    TRIREME_CHECK(store->Commit(change).ok());
  }
}

struct Started {
  explicit Started(JobStore& store) {
    const ReconcilerPorts ports{.make_plan = [](const v1::Job&) {},
                                .desired_changed = [](const std::string&) {}};
    auto opened = Reconciler::Open({}, ports, store, table, kNow);
    TRIREME_CHECK(opened.ok());
    reconciler = *std::move(opened);
  }
  JobTable table;
  std::unique_ptr<Reconciler> reconciler;
};

void Measure(const std::string& path, uint64_t jobs) {
  fmt::print("{:58} {:10.1f} MB\n", "the store",
             static_cast<double>(std::filesystem::file_size(path)) / 1e6);
  Line("as before: every page and row checked, all jobs read", MsOf([&] {
         auto store = *JobStore::Open(path);
         TRIREME_CHECK(store->Jobs().ok());
       }));
  const double before = MiB();
  std::unique_ptr<JobStore> store;
  std::unique_ptr<Started> started;
  const double opening = MsOf([&] { store = *JobStore::Open(path, StoreCheck::kWhatIsRead); });
  Line("the store opened", opening);
  const double loading = MsOf([&] { started = std::make_unique<Started>(*store); });
  Line("what has not ended loaded", loading);
  Line("until it is ready", opening + loading);
  fmt::print("{:58} {:10.1f} MiB\n", "memory then", MiB() - before);
  double longest = 0;
  int turns = 0;
  const double first = MsOf([&] { started->reconciler->Tick(kNow); });
  const auto here = [&] {
    size_t count = 0;
    started->table.ForEach([&](const v1::Job&, const v1::Progress*) { ++count; });
    return count;
  };
  double reading = 0;
  for (; here() < jobs; ++turns) {
    const double turn = MsOf([&] { started->reconciler->Tick(kNow + turns); });
    longest = std::max(longest, turn);
    reading += turn;
  }
  Line("the first turn", first);
  fmt::print("{:58} {:10.1f} ms in {} turns, the longest {:.1f} ms\n", "the rest read", reading,
             turns, longest);
  fmt::print("{:58} {:10.1f} MiB\n", "memory then", MiB() - before);
  v1::ListRequest request;
  request.set_page_size(50);
  Line("List, a page of 50", MsOf([&] { TRIREME_CHECK(started->table.List(request).ok()); }));
  Line("the check of all, beside the loop", MsOf([&] { TRIREME_CHECK(store->CheckAll().ok()); }));
}

int Main(int argc, char** argv) {
  CLI::App app("The start of a coordinator whose store has many jobs.");
  uint64_t ended = 100000, queued = 100000;
  std::string folder;
  app.add_option("FOLDER", folder, "for a store, which is removed")->required();
  app.add_option("--ended", ended, "jobs, with six events each")->capture_default_str();
  app.add_option("--queued", queued, "jobs")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const std::string path = folder + "/bench_start.db";
  std::filesystem::remove(path);
  Fill(path, ended, queued);
  Measure(path, ended + queued);
  for (const char* suffix : {"", "-wal"}) std::filesystem::remove(path + suffix);
  return 0;
}

}  // namespace
}  // namespace trireme::coordinator

int main(int argc, char** argv) { return trireme::coordinator::Main(argc, argv); }
