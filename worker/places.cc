#include "worker/places.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/memory_here.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/plan/planner.h"
#include "runtime/tensor/stream.h"

namespace trireme::worker {

namespace {

uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 1099511628211u;
  return hash;
}

// The ranks that share a bound on memory.
struct Load {
  size_t first_rank = 0;
  int ranks = 0;
  uint64_t wanted_bytes = 0;
};

void Add(Load& load, uint64_t arena_bytes) {
  ++load.ranks;
  load.wanted_bytes += arena_bytes;
}

// `of`: what bounds them, with a blank in front.
absl::Status TooMuch(const Load& load, uint64_t available_bytes, bool one_machine,
                     const std::string& of) {
  const std::string where =
      one_machine ? "this machine" : absl::StrCat("the machine of rank ", load.first_rank);
  return absl::ResourceExhaustedError(absl::StrCat(
      "the plan needs ", load.wanted_bytes >> 20, " MiB on ", where, " for ",
      base::Counted(load.ranks, "rank"), ", but ", available_bytes >> 20, " MiB are available", of,
      ". Lower training.micro_batch_size, set parallelism.zero_stage: 1, or use more machines"));
}

}  // namespace

Place ThisPlace(const std::string& root) {
  Place place;
  // Not the host name, which containers on one machine may have of their own.
  std::string boot;
  std::ifstream(root + "/proc/sys/kernel/random/boot_id") >> boot;
  place.machine = Fnv1a(boot);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    place.core_set = Fnv1a({reinterpret_cast<const char*>(&set), sizeof set});
    place.cores = static_cast<uint64_t>(std::max(1, CPU_COUNT(&set)));
  }
  const base::MemoryHere memory = base::LookAtMemory(root);
  place.available_bytes = memory.available_bytes;
  if (!memory.limits.empty()) {
    const base::MemoryLimit& limit = memory.limits.front();
    limit.file.copy(place.limit.data(), place.limit.size() - 1);
    place.limit_bytes = limit.limit_bytes;
    place.limit_available_bytes = limit.available_bytes;
  }
  return place;
}

absl::StatusOr<std::vector<Place>> GatherPlaces(comm::Communicator& everyone,
                                                std::chrono::milliseconds deadline) {
  std::vector<Place> places(static_cast<size_t>(everyone.size()));
  std::vector<int64_t> offsets;  // in bytes
  for (size_t rank = 0; rank <= places.size(); ++rank) {
    offsets.push_back(static_cast<int64_t>(rank * sizeof(Place)));
  }
  places[static_cast<size_t>(everyone.rank())] = ThisPlace();
  const std::unique_ptr<tensor::Stream> stream = tensor::MakeInlineStream();
  RETURN_IF_ERROR(everyone.WaitHost(
      everyone.AllGather({places.data(), offsets, tensor::DType::kU8}, *stream), deadline));
  return places;
}

int ThreadsAt(std::span<const Place> places, int rank) {
  const Place& here = places[static_cast<size_t>(rank)];
  const auto sharing = std::count_if(places.begin(), places.end(), [&](const Place& other) {
    return other.machine == here.machine && other.core_set == here.core_set;
  });
  return std::max(1, static_cast<int>(here.cores) / static_cast<int>(sharing));
}

absl::Status CheckFits(const v1::Plan& plan, std::span<const Place> places) {
  std::map<uint64_t, Load> machines;
  // Two ranks may be in groups of their own, as tasks of Slurm are, or in one.
  std::map<std::pair<uint64_t, std::string>, Load> groups;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const Place& place = places[rank];
    const plan::Coordinates at = plan::CoordinatesOf(plan.mesh(), static_cast<int>(rank));
    const uint64_t bytes = plan.stages(static_cast<int>(at.pipeline)).arena_bytes();
    Add(machines.try_emplace(place.machine, Load{rank}).first->second, bytes);
    if (place.limit[0] == '\0') continue;
    Add(groups.try_emplace({place.machine, place.limit.data()}, Load{rank}).first->second, bytes);
  }
  const bool one = machines.size() == 1;
  for (const auto& [machine, load] : machines) {
    const uint64_t available = places[load.first_rank].available_bytes;
    if (available == 0 || load.wanted_bytes <= available) continue;
    return TooMuch(load, available, one, "");
  }
  for (const auto& [group, load] : groups) {
    const Place& place = places[load.first_rank];
    if (load.wanted_bytes <= place.limit_available_bytes) continue;
    return TooMuch(
        load, place.limit_available_bytes, one,
        absl::StrCat(" below the limit of ", place.limit_bytes >> 20, " MiB in ", group.second));
  }
  return absl::OkStatus();
}

}  // namespace trireme::worker
