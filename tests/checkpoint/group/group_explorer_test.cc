// Every order in which messages may come, twice or never, agents die and nodes are lost, with the
// real machines, breadth first: whatever state that leads to, what was told to count can be
// rebuilt.
#include <absl/container/flat_hash_set.h>
#include <absl/hash/hash.h>

#include <catch2/catch.hpp>
#include <deque>
#include <iostream>
#include <string>
#include <vector>

#include "tests/checkpoint/group/group_world.h"

namespace trireme::checkpoint {
namespace {

struct Explored {
  size_t states = 0, moves = 0, tried_to_commit = 0, cut_short = 0;
  uint64_t most_counted = 0;
  std::string fault;  // with the way to it
};

struct Visit {
  GroupWorld world;
  size_t trace = 0;
};

class Explorer {
 public:
  Explorer(const WorldBounds& bounds, size_t most_states, size_t commit_every)
      : bounds_(bounds), most_states_(most_states), commit_every_(commit_every) {}

  Explored Run() {
    GroupWorld first(bounds_);
    first.Check();
    Reach(std::move(first), 0, {});
    while (!queue_.empty() && found_.fault.empty()) {
      const Visit visit = std::move(queue_.front());
      queue_.pop_front();
      for (const Action& action : visit.world.Possible()) {
        if (!found_.fault.empty()) break;
        Try(visit, action);
      }
    }
    found_.states = seen_.size();
    return found_;
  }

 private:
  struct Step {
    size_t before = 0;
    Action action;
  };

  void Try(const Visit& visit, Action action) {
    GroupWorld next = visit.world;
    next.Do(action);
    const std::vector<uint8_t> cuts = next.cuts();
    Reach(std::move(next), visit.trace, action);
    if (!visit.world.CanDie()) return;
    for (const uint8_t cut : cuts) {
      action.cut = cut;
      GroupWorld dying = visit.world;
      dying.Do(action);
      Reach(std::move(dying), visit.trace, action);
    }
  }

  void Reach(GroupWorld world, size_t before, const Action& action) {
    ++found_.moves;
    if (!seen_.insert(absl::HashOf(world)).second) return;
    const size_t trace = trace_.size();
    trace_.push_back({before, action});
    found_.most_counted = std::max(found_.most_counted, world.counted_round());
    if (!world.Fault().empty()) return Report(world.Fault(), world, trace);
    if (seen_.size() % commit_every_ == 0) {
      ++found_.tried_to_commit;
      GroupWorld end = world;
      if (!end.RunToCommit()) {
        return Report("no round comes to count any more: " + end.Fault(), world, trace);
      }
    }
    if (world.IsFarEnough() || seen_.size() > most_states_) {
      if (seen_.size() > most_states_) ++found_.cut_short;
      return;
    }
    queue_.push_back({std::move(world), trace});
  }

  void Report(const std::string& what, const GroupWorld& world, size_t trace) {
    std::vector<Action> way;
    for (; trace != 0; trace = trace_[trace].before) way.push_back(trace_[trace].action);
    GroupWorld again(bounds_);
    found_.fault = what + "\n";
    for (size_t i = way.size(); i-- > 0;) {
      again.Do(way[i]);
      found_.fault += way[i].Text() + "\n" + (i < 3 ? again.Text() : "");
    }
    found_.fault += "in the end\n" + world.Text();
  }

  WorldBounds bounds_;
  size_t most_states_, commit_every_;
  absl::flat_hash_set<size_t> seen_;
  std::vector<Step> trace_;
  std::deque<Visit> queue_;
  Explored found_;
};

struct Expected {
  size_t most_states = 3000000, least_states = 0, commit_every = 16;
  uint64_t counted = 2;
};

void Explore(const WorldBounds& bounds, const Expected& expected) {
  const Explored found = Explorer(bounds, expected.most_states, expected.commit_every).Run();
  std::cout << "explored " << found.states << " states by " << found.moves << " moves, "
            << found.tried_to_commit << " of them to a round that counts; " << found.cut_short
            << " not gone on from\n";
  INFO(found.fault);
  REQUIRE(found.fault.empty());
  CHECK(found.states >= expected.least_states);
  CHECK(found.most_counted >= expected.counted);
  CHECK(found.tried_to_commit >= found.states / expected.commit_every);
}

const JobGroups kTwoPairs{{.members = 2, .parity = 1}, {.members = 2, .parity = 1}};

TEST_CASE("group: two rounds with messages in any order, late, doubled or lost") {
  Explore({.timeouts = 1}, {.least_states = 80000});
}

TEST_CASE("group: messages that overtake each other, and one that comes for ever") {
  Explore({.from_the_beginning = false, .versions = 2, .rounds = 1, .window = 2, .kept = 1},
          {.most_states = 30000, .least_states = 30000});
}

TEST_CASE("group: an agent dies between any two of its orders") {
  Explore({.from_the_beginning = false, .versions = 1, .rounds = 1, .agent_deaths = 1},
          {.least_states = 30000});
}

TEST_CASE("group: a node is lost at any moment, with all that it held") {
  Explore({.from_the_beginning = false, .versions = 1, .rounds = 1, .node_losses = 1},
          {.most_states = 100000, .least_states = 100000});
}

TEST_CASE("group: all ranks die at any moment") {
  Explore({.from_the_beginning = false, .versions = 1, .rounds = 1, .rank_deaths = 1},
          {.least_states = 10000});
}

TEST_CASE("group: two groups of a job count the same version, whatever node is lost") {
  Explore({.groups = kTwoPairs,
           .from_the_beginning = false,
           .versions = 1,
           .rounds = 1,
           .node_losses = 1},
          {.most_states = 30000, .least_states = 30000});
}

// The same, further.

TEST_CASE("group: two rounds with a lost node, a dead agent, or both", "[slow]") {
  Explore({.from_the_beginning = false, .versions = 1, .rounds = 1, .node_losses = 1},
          {.least_states = 200000});
  Explore({.node_losses = 1}, {.least_states = 400000});
  Explore({.agent_deaths = 1}, {.most_states = 1000000, .least_states = 400000});
  Explore({.from_the_beginning = false,
           .versions = 1,
           .rounds = 1,
           .agent_deaths = 1,
           .node_losses = 1},
          {.most_states = 1000000, .least_states = 400000});
}

TEST_CASE("group: dead ranks and broken rounds, and two lost nodes one after the other", "[slow]") {
  Explore({.from_the_beginning = false, .versions = 1, .rounds = 1, .rank_deaths = 1, .breaks = 1},
          {.least_states = 100000});
  Explore({.from_the_beginning = false, .versions = 1, .rounds = 1, .node_losses = 2},
          {.most_states = 1000000, .least_states = 400000});
}

TEST_CASE("group: two pairs lose any node", "[slow]") {
  Explore({.groups = kTwoPairs,
           .from_the_beginning = false,
           .versions = 1,
           .rounds = 1,
           .node_losses = 1},
          {.most_states = 1000000, .least_states = 400000});
}

TEST_CASE("group: four members with parity for one and for two", "[slow]") {
  for (const uint32_t parity : {1U, 2U}) {
    Explore({.groups = {{.members = 4, .parity = parity}},
             .from_the_beginning = false,
             .versions = 2,
             .rounds = 2,
             .node_losses = parity},
            {.most_states = 1000000, .least_states = 400000, .counted = 1});
  }
}

}  // namespace
}  // namespace trireme::checkpoint
