// What mapped.cc makes.
#pragma once

#include <memory>

#include "runtime/comm/collectives.h"

namespace trireme::comm {

class Board;

// An algorithm that may find, on all ranks alike, that it cannot serve the call.
class MappedAlgorithm : public Algorithm {
 public:
  // Of the call that was started last, which then does not end.
  virtual bool refused() const = 0;
};

// Uses the group's node memories; one at a time in a group, as the board.
std::unique_ptr<MappedAlgorithm> MakeMapped(const Group* group, Board* board);

}  // namespace trireme::comm
