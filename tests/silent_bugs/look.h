// The detectors: which of them see a planted bug, when, and whom or what they name.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/silent_bugs/kinds.h"

namespace trireme::silent_bugs {

struct Seen {
  std::string by;     // plan check, replicas, parity, ...
  std::string when;   // before launch, step 2, ...
  std::string names;  // rank 1, h.0.ln_1.weight, ...; empty: nothing
};

// Whether it is the product that sees it, in each run; else a suite.
bool IsOfProduct(const Seen& seen);

struct Looked {
  std::vector<Seen> seen;
  std::string fault;  // of the bench's expectations: the wrong tensors, ranks ...; empty: none
};

Looked LookAtPlanted(const Kind& kind);
// The same job without the plant: `seen` are false alarms.
Looked LookAtHealthy(const Kind& kind);

// What a message names: tensors of `known`, ranks, stages, buckets, samples, files.
std::string NamesIn(const std::string& message, const std::set<std::string>& known);

}  // namespace trireme::silent_bugs
