// One name, one agent, by a clock of the test.
#include "coordinator/reconciler/node_leases.h"

#include <catch2/catch.hpp>
#include <vector>

namespace trireme::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const NodeLeases::Clock::time_point kStart{};
constexpr seconds kLease(10);

TEST_CASE("leases: a name is its holder's until it has been silent for a lease") {
  NodeLeases leases;
  CHECK(leases.Take("n1", "a", kStart, kLease));
  CHECK(leases.Take("n1", "a", kStart + seconds(1), kLease));  // started anew
  CHECK(!leases.Take("n1", "b", kStart + seconds(10), kLease));
  CHECK(leases.Take("n2", "b", kStart, kLease));
  leases.Renew("n1", kStart + seconds(5));
  CHECK(!leases.Take("n1", "b", kStart + seconds(15) - milliseconds(1), kLease));
  CHECK(leases.Take("n1", "b", kStart + seconds(15), kLease));
  // Now it is the other one that is somebody else.
  CHECK(!leases.Take("n1", "a", kStart + seconds(16), kLease));
}

TEST_CASE("leases: who is refused renews nothing") {
  NodeLeases leases;
  CHECK(leases.Take("n1", "a", kStart, kLease));
  for (int i = 1; i < 10; ++i) CHECK(!leases.Take("n1", "b", kStart + seconds(i), kLease));
  CHECK(leases.Take("n1", "b", kStart + seconds(10), kLease));
}

TEST_CASE("leases: a daemon that begins anew keeps the name for a lease for whom it was stored") {
  NodeLeases leases;
  leases.Recall("n1", "a", kStart);
  leases.Recall("n2", "", kStart);  // drained before names had holders
  CHECK(!leases.Take("n1", "b", kStart + seconds(9), kLease));
  CHECK(leases.Take("n1", "a", kStart + seconds(9), kLease));
  CHECK(leases.Take("n2", "b", kStart, kLease));
}

TEST_CASE("leases: who has spoken is told once, and who was refused is not") {
  NodeLeases leases;
  leases.Recall("n2", "b", kStart);
  leases.Renew("n3", kStart);  // nobody's
  CHECK(leases.TakeSpoken().empty());
  CHECK(leases.Take("n1", "a", kStart, kLease));
  CHECK(leases.TakeSpoken() == std::set<std::string>{"n1"});
  CHECK(!leases.Take("n1", "b", kStart, kLease));
  CHECK(leases.TakeSpoken().empty());
  leases.Renew("n1", kStart);
  leases.Renew("n1", kStart);
  leases.Renew("n2", kStart);
  CHECK(leases.TakeSpoken() == std::set<std::string>{"n1", "n2"});
  CHECK(leases.TakeSpoken().empty());
}

TEST_CASE("leases: whose turn a name is costs a look at live attempts alone") {
  JobTable table;
  std::vector<v1::Job> jobs;
  for (uint64_t id = 1; id <= 1000; ++id) {
    v1::Job& job = jobs.emplace_back();
    job.set_id(id);
    job.mutable_status()->set_state(id == 500 ? v1::JOB_RUNNING : v1::JOB_COMPLETED);
    job.mutable_status()->set_attempt_live(id == 500);
    job.add_allocation()->set_node(id == 500 ? "n1" : "n2");
  }
  table.Publish({jobs.begin() + 400, jobs.end()}, {});
  table.PublishOlder({jobs.begin(), jobs.begin() + 400}, 1);
  const auto looks = [&] {
    int count = 0;
    table.ForEachLive([&](const v1::Job& job) {
      CHECK(job.id() == 500);
      ++count;
    });
    return count;
  };
  const NameTimes times{kLease, kLease};
  const auto is_held = [&](const std::string& node) {
    return NameTurnOf(table, times, node, NameAsker::kAnother).lease > kLease;
  };
  CHECK(looks() == 1);
  CHECK(is_held("n1"));
  CHECK(!is_held("n2"));
  jobs[499].mutable_status()->set_attempt_live(false);
  table.Publish({jobs[499]}, {});
  CHECK(looks() == 0);
  CHECK(!is_held("n1"));
  jobs[499].mutable_status()->set_attempt_live(true);
  table.Publish({jobs[499]}, {});
  CHECK(looks() == 1);
  table.Drop({500});
  CHECK(looks() == 0);
}

}  // namespace
}  // namespace trireme::coordinator
