// A coordinator with a long queue: what a turn of its one thread takes, and what people wait for.
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "coordinator/reconciler/reconciler.h"
#include "runtime/base/check.h"

namespace trireme::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

double MsOf(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Sizes {
  uint32_t jobs = 100000;
  uint32_t nodes = 100;
  uint32_t kinds = 20;  // of requests
  bool limits = false;
};

class Queue {
 public:
  explicit Queue(const Sizes& sizes) : sizes_(sizes) {
    store_ = *JobStore::Open(":memory:");
    Open();
    for (uint32_t i = 0; i < sizes.nodes; ++i) Dial(i);
  }

  void Open() {
    table_ = std::make_unique<JobTable>();
    const ReconcilerPorts ports{.make_plan = [](const v1::Job&) {},
                                .desired_changed = [](const std::string&) {}};
    auto opened = Reconciler::Open({}, ports, *store_, *table_, now_);
    TRIREME_CHECK(opened.ok());
    reconciler_ = *std::move(opened);
  }
  void Submit(uint32_t number) {
    Submission submission;
    submission.owner = "ann";
    submission.request_id = std::to_string(number);
    submission.job.set_name("job");
    submission.job.mutable_data()->add_text_files("/data/text.txt");
    if (sizes_.limits) {
      submission.job.mutable_resources()->set_time_limit_seconds(3600 * (1 + number % 7));
    }
    submission.resources.set_ranks(1 + number % sizes_.kinds);
    submission.resources.set_cpus_per_rank(4);
    TRIREME_CHECK(reconciler_->Submit(submission, ++now_).ok());
  }
  double Tick() {
    return MsOf([&] { reconciler_->Tick(now_ += 1000000); });
  }
  // Of the node of a job that runs, which has made progress and has saved a checkpoint.
  double Report(uint64_t job) {
    const std::string node = table_->Get(job)->allocation(0).node();
    v1::NodeReport report;
    v1::AttemptReport& one = *report.add_attempts();
    one.set_job_id(job);
    one.set_attempt(1);
    one.set_phase(v1::ATTEMPT_RUNNING);
    one.set_saved_step(++step_);
    one.mutable_progress()->set_steps_done(step_);
    v1::RankReport& rank = *one.add_ranks();
    rank.set_life(v1::RANK_ALIVE);
    rank.mutable_timing()->set_step_ms(100);
    const double ms = MsOf([&] {
      TRIREME_CHECK(reconciler_->Report(node, report, now_ += 1000000).ok());
      reconciler_->Tick(now_);
    });
    TRIREME_CHECK(table_->ProgressOf(job)->steps_done() == step_);
    TRIREME_CHECK(table_->StatusOf(job)->checkpoint_step() == step_);
    return ms;
  }
  void Launch(uint64_t job) {
    TRIREME_CHECK(reconciler_->PlanReady(job, 1, absl::OkStatus(), now_).ok());
  }
  // What a start leaves to the turns after it.
  void ReadAll() {
    while (!table_->OlderHaveCome()) Tick();
  }
  // Whether a job would start now, as PreviewPlan asks: a decision of its own.
  double Preview() {
    v1::ResourceRequest resources;
    resources.set_ranks(3);
    resources.set_cpus_per_rank(5);
    return MsOf([&] { reconciler_->WouldWaitFor(resources, {}, now_); });
  }
  // One of those that run ends: places are given anew.
  double End(uint64_t job) {
    const v1::Job known = *table_->Get(job);
    Launch(job);
    v1::NodeReport report;
    v1::AttemptReport& one = *report.add_attempts();
    one.set_job_id(job);
    one.set_attempt(1);
    one.set_phase(v1::ATTEMPT_ENDED);
    return MsOf([&] {
      for (const v1::NodeAllocation& part : known.allocation()) {
        TRIREME_CHECK(reconciler_->Report(part.node(), report, now_ += 1000000).ok());
      }
      reconciler_->Tick(now_);
    });
  }
  double List() {
    v1::ListRequest request;
    request.set_page_size(50);
    return MsOf([&] { TRIREME_CHECK(table_->List(request).ok()); });
  }
  double Get(uint64_t job) {
    return MsOf([&] { TRIREME_CHECK(table_->Get(job).ok()); });
  }
  double Desired() {
    return MsOf([&] { reconciler_->DesiredOf("n0"); });
  }
  std::vector<uint64_t> Placed() const {
    std::vector<uint64_t> placed;
    table_->ForEach([&](const v1::Job& job, const v1::Progress*) {
      if (!job.allocation().empty()) placed.push_back(job.id());
    });
    return placed;
  }

 private:
  void Dial(uint32_t number) {
    v1::AgentHello hello;
    hello.set_node(fmt::format("n{}", number));
    hello.set_cpus(16);
    hello.set_memory_bytes(uint64_t{1} << 40);
    TRIREME_CHECK(reconciler_->Hello(hello, now_).ok());
  }

  const Sizes sizes_;
  int64_t now_ = 1'000'000'000'000;
  uint64_t step_ = 0;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<JobTable> table_;
  std::unique_ptr<Reconciler> reconciler_;
};

void Line(const char* what, const std::function<double()>& work) {
  std::vector<double> ms;
  for (int i = 0; i < 20; ++i) ms.push_back(work());
  std::sort(ms.begin(), ms.end());
  fmt::print("{:44} median {:9.3f} ms, most {:9.3f} ms\n", what, ms[ms.size() / 2], ms.back());
}

int Main(int argc, char** argv) {
  CLI::App app("Turns of a coordinator whose queue is long; the store is in memory.");
  Sizes sizes;
  app.add_option("--jobs", sizes.jobs, "that wait")->capture_default_str();
  app.add_option("--nodes", sizes.nodes, "of 16 CPUs each")->capture_default_str();
  app.add_option("--kinds", sizes.kinds, "of requests")->capture_default_str();
  app.add_flag("--limits", sizes.limits, "each job has one of seven time limits");
  CLI11_PARSE(app, argc, argv);
  const size_t before = mallinfo2().uordblks;
  Queue queue(sizes);
  fmt::print("{:44} {:16.3f} ms\n", "submit all", MsOf([&] {
               for (uint32_t i = 0; i < sizes.jobs; ++i) queue.Submit(i);
             }));
  queue.ReadAll();
  fmt::print("{:44} {:16.1f} MiB\n", "memory, with the store's",
             static_cast<double>(mallinfo2().uordblks - before) / (1 << 20));
  std::vector<uint64_t> placed = queue.Placed();
  queue.Launch(placed.front());
  Line("a report of progress and a checkpoint", [&] { return queue.Report(placed.front()); });
  Line("a job ends, and others get its places", [&] {
    const uint64_t job = placed.back();
    placed.pop_back();
    return queue.End(job);
  });
  Line("a job is submitted", [&] {
    return MsOf([&] {
      queue.Submit(++sizes.jobs);
      queue.Tick();
    });
  });
  Line("what another would wait for", [&] { return queue.Preview(); });
  Line("the desired state of a node", [&] { return queue.Desired(); });
  Line("Get of the last in the queue", [&] { return queue.Get(sizes.jobs); });
  Line("List, a page of 50", [&] { return queue.List(); });
  fmt::print("{:44} {:16.3f} ms\n", "start-up", MsOf([&] { queue.Open(); }));
  return 0;
}

}  // namespace
}  // namespace trireme::coordinator

int main(int argc, char** argv) { return trireme::coordinator::Main(argc, argv); }
