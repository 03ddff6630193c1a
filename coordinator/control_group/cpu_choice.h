// Which CPUs an attempt gets for itself. Pure.
#pragma once

#include <cstddef>
#include <map>

#include "coordinator/control_group/cpu_list.h"

namespace trireme::control_group {

struct CpuPlace {
  int core = 0;  // the same for the hardware threads of one
  int node = 0;  // of memory (NUMA)
};
using CpuPlaces = std::map<int, CpuPlace>;  // by the CPU's number

// `count` of `usable` that are not `taken`; empty: there are not so many.
//
// An attempt on an idle machine runs as fast as it would on all of its CPUs: as long as there are
// cores that nobody uses, each CPU is one of a core of its own. Then come further threads of those
// cores, and last cores that another attempt uses. Among CPUs that are equal in that they are all
// of one node if they fit there, of the one that has the fewest left; else of few nodes. Then
// neighbours, the lowest numbers first.
CpuSet ChooseCpus(const CpuPlaces& usable, const CpuSet& taken, size_t count);

}  // namespace trireme::control_group
