// The table that readers look at: pages, progress, events, and readers beside the writer.
#include "coordinator/reconciler/job_table.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

namespace trireme::coordinator {
namespace {

v1::Job Row(uint64_t id, const std::string& name = "tiny") {
  v1::Job job;
  job.set_id(id);
  job.set_owner("ann");
  job.set_name(name);
  job.mutable_spec()->set_name(name);
  job.mutable_status()->set_state(v1::JOB_RUNNING);
  return job;
}

v1::Event EventOf(uint64_t sequence, uint64_t job = 1) {
  v1::Event event;
  event.set_sequence(sequence);
  event.set_job_id(job);
  return event;
}

v1::Progress Steps(uint64_t done) {
  v1::Progress progress;
  progress.set_steps_done(done);
  return progress;
}

}  // namespace

TEST_CASE("table: lists are chosen by name, bounded, and without specs") {
  JobTable table;
  std::vector<v1::Job> jobs;
  for (uint64_t id = 1; id <= 1200; ++id) jobs.push_back(Row(id, id == 7 ? "other" : "tiny"));
  table.Publish(jobs, {});
  v1::ListRequest request;
  CHECK(table.List(request)->jobs_size() == 100);
  request.set_page_size(5000);
  CHECK(table.List(request)->jobs_size() == 1000);
  CHECK_FALSE(table.List(request)->jobs(0).has_spec());
  CHECK(table.Get(7)->has_spec());
  request.set_name("other");
  const auto other = table.List(request);
  REQUIRE(other->jobs_size() == 1);
  CHECK(other->jobs(0).id() == 7);
}

TEST_CASE("table: events are kept from the first to the last that there is") {
  JobTable table;
  table.Publish({Row(1)}, {EventOf(5), EventOf(6), EventOf(7)});
  CHECK(table.last_sequence() == 7);
  CHECK_FALSE(table.EventsAfter(3, 10).has_value());  // 4 is not here
  CHECK(table.EventsAfter(4, 10)->size() == 3);
  CHECK(table.EventsAfter(4, 2)->size() == 2);
  CHECK(table.EventsAfter(6, 10)->size() == 1);
  CHECK(table.EventsAfter(7, 10)->empty());
}

TEST_CASE("table: each job's newest progress is told once") {
  JobTable table;
  table.Publish({Row(1), Row(2)}, {});
  CHECK_FALSE(table.ProgressOf(1).has_value());
  uint64_t version = 0;
  table.PutProgress(1, Steps(3));
  table.PutProgress(2, Steps(4));
  table.PutProgress(1, Steps(5));
  const auto moved = table.ProgressSince(version);
  REQUIRE(moved.size() == 2);
  CHECK(moved[0].job_id() == 2);
  CHECK(moved[1].progress().steps_done() == 5);
  CHECK(table.ProgressSince(version).empty());
  table.PutProgress(2, Steps(6));
  table.Drop({2});
  CHECK(table.ProgressSince(version).empty());
  CHECK_FALSE(table.Get(2).ok());
}

TEST_CASE("table: readers beside the writer see whole jobs") {
  JobTable table;
  constexpr int kLooks = 300;  // of all readers together
  std::atomic<bool> over{false};
  std::atomic<int> news{0};
  std::atomic<int> looks{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&] {
      const int subscription = table.Subscribe([&news] { ++news; });
      uint64_t version = 0, last = 0;
      while (!over) {
        if (const auto job = table.Get(1); job.ok()) {
          // Its status and its name are of one moment.
          if (job->name() != "round " + std::to_string(job->status().attempt())) news = -1000000;
          ++looks;
        }
        table.ProgressSince(version);
        for (const v1::Event& event :
             table.EventsAfter(last, 100).value_or(std::vector<v1::Event>())) {
          if (event.sequence() != last + 1) news = -1000000;
          last = event.sequence();
        }
        static_cast<void>(table.List({}));
        table.cluster();
        table.ForEach([](const v1::Job&, const v1::Progress*) {});
      }
      table.Unsubscribe(subscription);
    });
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  uint64_t round = 0;
  while (looks < kLooks && std::chrono::steady_clock::now() < until) {
    ++round;
    v1::Job job = Row(1, "round " + std::to_string(round));
    job.mutable_status()->set_attempt(static_cast<uint32_t>(round));
    table.Publish({job}, {EventOf(round)});
    // Often, so that readers come in between: a round's other calls wait for readers.
    for (int again = 0; again < 20; ++again) table.PutProgress(1, Steps(round));
    table.PutInQueue({0, 1, 1}, 7);
    table.PutWaits(std::make_shared<Waits>(), {{1, "room"}});
    table.PutInQueue({0, 1, 1}, std::nullopt);
    table.PutCluster({});
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(looks >= kLooks);
  CHECK(news >= 0);
  CHECK(table.Get(1)->status().attempt() == round);
}

TEST_CASE("table: whoever waits is told his place, and why as soon as that is known") {
  JobTable table;
  std::vector<v1::Job> jobs;
  for (uint64_t id = 1; id <= 5; ++id) {
    v1::Job& job = jobs.emplace_back();
    job.set_id(id);
    job.set_priority(id == 5 ? 10 : 0);
    job.set_submitted_unix_ns(static_cast<int64_t>(id));
    job.mutable_status()->set_state(v1::JOB_PENDING);
    // Those of even numbers are in another line.
    table.PutInQueue({-job.priority(), job.submitted_unix_ns(), id}, 1 + id % 2);
  }
  table.Publish(jobs, {});
  CHECK(table.Get(5)->queue_position() == 1);
  CHECK(table.Get(1)->waits_for() == "waits in the queue: 1 job is before it");
  CHECK(table.Get(4)->queue_position() == 5);
  Waiter held{.asked = std::make_shared<const Asked>(), .held_back_by = 7};
  auto waits = std::make_shared<Waits>();
  waits->cluster.capacity.resize(1);
  waits->cluster.nodes.resize(1);
  waits->cluster.free.resize(1);
  waits->of_lines[2] = held;
  held.held_back_by = 8;
  waits->of_jobs[3] = held;
  table.PutWaits(waits, {{1, "its agent"}});
  CHECK(table.Get(5)->waits_for() == "job 7 has waited for more than 10 minutes and goes first");
  CHECK(table.Get(1)->waits_for() == table.Get(5)->waits_for());
  CHECK(table.Get(3)->waits_for() == "job 8 has waited for more than 10 minutes and goes first");
  CHECK(table.Get(2)->waits_for() == "waits in the queue: 2 jobs are before it");
  CHECK(table.PlaceOf({0, 4, 4}).before == 4);
  CHECK(table.PlaceOf({0, 4, 4}).last_before == 3);
  // One that leaves is no longer before anybody; what ranks wait for is told of whoever has some.
  table.PutInQueue({0, 1, 1}, std::nullopt);
  jobs[0].mutable_status()->set_state(v1::JOB_LAUNCHING);
  jobs[0].add_allocation()->set_node("n1");
  table.Publish({jobs[0]}, {});
  CHECK(table.Get(1)->queue_position() == 0);
  CHECK(table.Get(1)->waits_for() == "its agent");
  CHECK(table.Get(4)->queue_position() == 4);
  jobs[0].mutable_status()->set_state(v1::JOB_CANCELLED);
  jobs[0].clear_allocation();
  table.Publish({jobs[0]}, {});
  CHECK(table.Get(1)->waits_for().empty());
}

}  // namespace trireme::coordinator
