// The rules of the section `resources` (rules.cc has its ranges).
#pragma once

#include <vector>

#include "runtime/spec/job_spec.h"

namespace trireme::spec {

// resources.ranks, where given, are those of the mesh.
void RanksFillTheMesh(const v1::JobSpec& spec, std::vector<Fault>& faults);

// resources.nodes are names of machines, each once.
void NodesAreNames(const v1::JobSpec& spec, std::vector<Fault>& faults);

}  // namespace trireme::spec
