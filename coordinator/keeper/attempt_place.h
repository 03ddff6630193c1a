// Where the folder of an attempt that has begun should be, and nobody has claimed one: whether
// somebody has removed it, or the file system of the run folder is away. Both look alike by path:
// where a mount was taken off there is nothing, or the folder that it had hidden.
#pragma once

#include <string>

#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

enum class Place {
  kThere,    // the folder, unclaimed
  kClaimed,  // the folder, and a guard has claimed it: it has just come back
  kRemoved,  // the run folder alone
  kAway,     // what is there is not known to be the run folder
};

struct PlaceSeen {
  Place place = Place::kThere;
  std::string why;  // kAway, kClaimed
};

// `claimed`: whoever launches has written RUN/run.json (docs/formats/run_folder.md), which says
// whose the run folder is; else RUN/attempts has to do. All is read of one opened folder, whatever
// is mounted meanwhile. Blocks on the disk.
PlaceSeen LookForPlace(const v1::DesiredAttempt& attempt, bool claimed);

// Where its mount is away. Empty: it is there.
std::string WhyNotThere(const std::string& run_folder);

}  // namespace trireme::keeper
