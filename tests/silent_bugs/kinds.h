// The table of cases: each published kind of silent bug (docs/silent_bugs.md), where it was seen,
// and how it is planted here, or what it needs that is not here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/silent_bugs/plant.h"

namespace trireme::silent_bugs {

struct Kind {
  int number = 0;
  std::string family, bug, source;
  std::string needs;    // not empty: nothing is planted
  std::string planted;  // what is planted, for people
  Job job;
  Plant plant;
  // What a run would compute that nothing has kept from going on, where checks do; unset: `plant`.
  std::function<Plant()> consequence;
  // Whether the bug spoils this tensor at the first moment at which any differs; unset: not known
  // beforehand. The state of a resumed run is named "parameter h.0.ln_1.weight".
  std::function<bool(const std::string&)> spoils;
  // What must be named by some check that speaks: ranks, stages, tensors, files.
  std::vector<std::string> names;
};

// For Kind::spoils.
inline bool Everything(const std::string&) { return true; }

// By number.
std::vector<Kind> AllKinds();

// Its parts, by what they are about.
std::vector<Kind> KindsOfNumbers();  // sums, scale, norm
std::vector<Kind> KindsOfPlans();    // stale, random, cut
std::vector<Kind> KindsOfState();    // state, data

}  // namespace trireme::silent_bugs
