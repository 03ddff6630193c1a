// Would the loss have shown it? 200 steps of the sound run and of the planted one on the same data,
// against what other initial weights make of the loss.
#pragma once

#include <map>
#include <string>

#include "tests/silent_bugs/kinds.h"

namespace trireme::silent_bugs {

// The losses are smoothed: the mean of the last 20 steps. How far two runs are apart is the largest
// relative difference of these over the last 50 of 200 steps. A bug shows if the planted run is
// further from the sound one than any two of three sound runs, which differ in their seed, are from
// each other.
struct Curve {
  double apart = 0;  // planted and sound; infinite where the planted one had no finite loss
  double seeds = 0;  // the largest of the three
  bool shows() const { return !(apart <= seeds); }
};

class Curves {
 public:
  Curve Measure(const Kind& kind);

 private:
  struct Sound {
    std::vector<double> losses;
    double seeds = 0;
  };
  const Sound& SoundOf(const Kind& kind);
  std::map<std::string, Sound> sound_;  // by model: no layout changes a sound loss
};

}  // namespace trireme::silent_bugs
