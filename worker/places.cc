#include "worker/places.h"

#include <sched.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/fnv1a.h"
#include "runtime/base/memory_here.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/choice.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/planner.h"

namespace trireme::worker {

namespace {

// A tree takes all places together, in a group of any size up to 8,192.
static_assert(sizeof(Place) <= comm::kTreeBytesPerRank);

// The ranks that share a bound on memory.
struct Load {
  size_t first_rank = 0;
  int ranks = 0;
  uint64_t wanted_bytes = 0;
};

// `load`: new, or of ranks before this one.
void Add(Load& load, size_t rank, uint64_t arena_bytes) {
  if (load.ranks == 0) load.first_rank = rank;
  ++load.ranks;
  load.wanted_bytes += arena_bytes;
}

// Machine, device and inode.
using GroupId = std::tuple<uint64_t, uint64_t, uint64_t>;

GroupId IdOf(const Place& place, const GroupLimit& limit) {
  return {place.machine, limit.device, limit.inode};
}

// What the groups of each machine have to hold.
std::map<GroupId, Load> LoadOfGroups(std::span<const Place> places,
                                     std::span<const uint64_t> arena_bytes) {
  std::map<GroupId, Load> groups;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    for (const GroupLimit& limit : places[rank].limits) {
      if (limit.inode == 0) continue;
      Add(groups[IdOf(places[rank], limit)], rank, arena_bytes[rank]);
    }
  }
  return groups;
}

// A path that was opened is not longer.
using FileName = std::array<char, PATH_MAX>;

// Collective: how `rank` names the file of a limit it has. Not known in advance, since it is needed
// where a job ends anyway.
absl::StatusOr<std::string> FileOf(const GroupLimit& group, int rank, comm::Agreement& agreement,
                                   const std::string& root) {
  FileName name = {};
  if (agreement.rank() == rank) {
    for (const base::MemoryLimit& limit : base::LookAtMemory(root).limits) {
      if (limit.device != group.device || limit.inode != group.inode) continue;
      limit.file.copy(name.data(), name.size() - 1);
    }
  }
  RETURN_IF_ERROR(agreement.Broadcast(std::as_writable_bytes(std::span(name)), rank));
  // Taken away in between.
  return std::string(name[0] == '\0' ? "a control group" : name.data());
}

}  // namespace

Place ThisPlace(const std::string& root) {
  Place place;
  std::string boot;
  std::ifstream(root + "/proc/sys/kernel/random/boot_id") >> boot;
  // The host's name only where there is nothing better: containers on one machine may each have one
  // of their own. Without either all machines would be one.
  place.machine = base::Fnv1a(boot.empty() ? base::HostName() : boot);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    place.core_set = base::Fnv1a({reinterpret_cast<const char*>(&set), sizeof set});
    place.cores = static_cast<uint64_t>(std::max(1, CPU_COUNT(&set)));
  }
  const base::MemoryHere memory = base::LookAtMemory(root);
  place.available_bytes = memory.available_bytes;
  for (size_t i = 0; i < std::min(kGroupLimits, memory.limits.size()); ++i) {
    const base::MemoryLimit& limit = memory.limits[i];
    place.limits[i] = {limit.device, limit.inode, limit.limit_bytes, limit.available_bytes};
  }
  return place;
}

namespace {

int PartOf(const Place& place, int sharing) {
  return std::max(1, static_cast<int>(place.cores) / sharing);
}

}  // namespace

int ThreadsAt(std::span<const Place> places, int rank) {
  const Place& here = places[static_cast<size_t>(rank)];
  const auto sharing = std::count_if(places.begin(), places.end(), [&](const Place& other) {
    return other.machine == here.machine && other.core_set == here.core_set;
  });
  return PartOf(here, static_cast<int>(sharing));
}

int LeastThreads(std::span<const Place> places) {
  std::map<std::pair<uint64_t, uint64_t>, int> sharing;
  for (const Place& place : places) ++sharing[{place.machine, place.core_set}];
  int least = std::numeric_limits<int>::max();
  for (const Place& place : places) {
    least = std::min(least, PartOf(place, sharing[{place.machine, place.core_set}]));
  }
  return least;
}

std::optional<Shortage> FindShortage(const v1::Plan& plan, std::span<const Place> places) {
  std::vector<uint64_t> arena_bytes;
  std::map<uint64_t, Load> machines;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const plan::Coordinates at = plan::CoordinatesOf(plan.mesh(), static_cast<int>(rank));
    const v1::StagePlan& stage = plan.stages(static_cast<int>(at.pipeline));
    const uint64_t held = std::min(places[rank].held_bytes, stage.snapshot_bytes());
    arena_bytes.push_back(plan::MemoryBytes(stage) - held);
    Add(machines[places[rank].machine], rank, arena_bytes.back());
  }
  const auto shortage = [&](const Load& load, uint64_t available_bytes, const GroupLimit& group) {
    return Shortage{static_cast<int>(load.first_rank),
                    load.ranks,
                    load.wanted_bytes,
                    available_bytes,
                    machines.size() == 1,
                    group};
  };
  for (const Place& place : places) {
    const Load& load = machines.at(place.machine);
    const uint64_t available = places[load.first_rank].available_bytes;
    if (available == 0 || load.wanted_bytes <= available) continue;
    return shortage(load, available, {});
  }
  const std::map<GroupId, Load> groups = LoadOfGroups(places, arena_bytes);
  for (size_t rank = 0; rank < places.size(); ++rank) {
    for (const GroupLimit& limit : places[rank].limits) {
      if (limit.inode == 0) continue;
      const Load& load = groups.at(IdOf(places[rank], limit));
      // By the first rank's look at it: what the others see may have changed meanwhile.
      if (load.first_rank != rank) continue;
      if (load.wanted_bytes > limit.available_bytes) {
        return shortage(load, limit.available_bytes, limit);
      }
    }
  }
  return std::nullopt;
}

absl::Status CheckFits(const v1::Plan& plan, std::span<const Place> places,
                       comm::Agreement& agreement, const std::string& root) {
  const std::optional<Shortage> found = FindShortage(plan, places);
  if (!found) return absl::OkStatus();
  const int first = found->first_rank;
  const bool grouped = found->group.inode != 0;
  std::string below;
  if (grouped) {
    ASSIGN_OR_RETURN(const std::string file, FileOf(found->group, first, agreement, root));
    below = absl::StrCat(" below the limit of ", found->group.limit_bytes >> 20, " MiB in ", file,
                         ", as rank ", first, " sees it");
  }
  const uint64_t mib_a_rank =
      std::max<uint64_t>(1, (found->available_bytes >> 20) / static_cast<uint64_t>(found->ranks));
  return absl::ResourceExhaustedError(absl::StrCat(
      "the plan needs ", found->wanted_bytes >> 20, " MiB on ",
      found->one_machine ? "this machine" : absl::StrCat("the machine of rank ", first), " for ",
      base::Counted(found->ranks, "rank"), ", but ", found->available_bytes >> 20,
      " MiB are available", below, grouped ? ". Raise that limit, use" : ". Use",
      " more machines, or what trireme plan JOB --fit ", mib_a_rank, "MiB names"));
}

}  // namespace trireme::worker
