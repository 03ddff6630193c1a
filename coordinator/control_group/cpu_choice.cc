#include "coordinator/control_group/cpu_choice.h"

#include <algorithm>
#include <climits>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace trireme::control_group {
namespace {

// Of a core that another attempt uses.
constexpr int kSharedCore = INT_MAX;

struct FreeCpu {
  int rank = 0;  // which of the free threads of its core it is, or kSharedCore: the least is best
  CpuPlace place;
  int cpu = 0;
};

// Best first.
std::vector<FreeCpu> FreeCpus(const CpuPlaces& usable, const CpuSet& taken) {
  std::set<int> shared;
  for (const auto& [cpu, place] : usable) {
    if (taken.contains(cpu)) shared.insert(place.core);
  }
  std::map<int, int> threads;  // by core, free ones so far
  std::vector<FreeCpu> free;
  for (const auto& [cpu, place] : usable) {
    if (taken.contains(cpu)) continue;
    const int rank = shared.contains(place.core) ? kSharedCore : threads[place.core]++;
    free.push_back({rank, place, cpu});
  }
  std::sort(free.begin(), free.end(), [](const FreeCpu& a, const FreeCpu& b) {
    return std::tie(a.rank, a.place.node, a.place.core, a.cpu) <
           std::tie(b.rank, b.place.node, b.place.core, b.cpu);
  });
  return free;
}

// Nodes that have `count` of them together: one, the one with the fewest, or as few as it takes,
// those with the most first.
std::vector<int> ChooseNodes(const std::vector<FreeCpu>& candidates, size_t count) {
  std::map<int, size_t> have;
  for (const FreeCpu& free : candidates) ++have[free.place.node];
  std::vector<std::pair<int, size_t>> nodes(have.begin(), have.end());  // the lowest first
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  std::stable_sort(nodes.begin(), nodes.end(), fewer);
  for (const auto& [node, cpus] : nodes) {
    if (cpus >= count) return {node};
  }
  const auto more = [](const auto& a, const auto& b) { return a.second > b.second; };
  std::sort(nodes.begin(), nodes.end());
  std::stable_sort(nodes.begin(), nodes.end(), more);
  std::vector<int> chosen;
  size_t together = 0;
  for (size_t i = 0; together < count; ++i) {
    chosen.push_back(nodes[i].first);
    together += nodes[i].second;
  }
  return chosen;
}

}  // namespace

CpuSet ChooseCpus(const CpuPlaces& usable, const CpuSet& taken, size_t count) {
  std::vector<FreeCpu> candidates = FreeCpus(usable, taken);
  if (count == 0 || candidates.size() < count) return {};
  const int worst = candidates[count - 1].rank;
  std::erase_if(candidates, [&](const FreeCpu& free) { return free.rank > worst; });
  const std::vector<int> nodes = ChooseNodes(candidates, count);
  const auto turn = [&](const FreeCpu& free) {
    return std::find(nodes.begin(), nodes.end(), free.place.node) - nodes.begin();
  };
  std::stable_sort(candidates.begin(), candidates.end(), [&](const FreeCpu& a, const FreeCpu& b) {
    return std::pair(a.rank, turn(a)) < std::pair(b.rank, turn(b));
  });
  CpuSet chosen;
  for (const FreeCpu& free : candidates) {
    const bool ours = turn(free) < static_cast<long>(nodes.size());
    if (ours && chosen.size() < count) chosen.insert(free.cpu);
  }
  return chosen;
}

}  // namespace trireme::control_group
