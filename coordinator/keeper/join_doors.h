// Where helpers of mpirun's remote shell ask for their attempt's control group on this node
// (launcher/join_attempt.h): a unix socket for each attempt that another node has launched.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/keeper/seat.h"

namespace trireme::keeper {

class JoinDoor;

// One thread, which waits for nobody.
class JoinDoors {
 public:
  JoinDoors();
  ~JoinDoors();

  // Listens for these attempts and no others, and answers who has come since the last call: to be
  // called after each look of the keeper. The first failure of an attempt is returned once, for a
  // log; its helpers do without.
  absl::Status Serve(const std::vector<Seat>& seats);

 private:
  std::map<std::string, std::unique_ptr<JoinDoor>> doors_;  // by their socket
};

}  // namespace trireme::keeper
