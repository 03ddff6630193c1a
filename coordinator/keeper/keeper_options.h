// Whose attempts a keeper keeps, and where.
#pragma once

#include <string>
#include <vector>

namespace trireme::keeper {

struct KeeperOptions {
  std::string node;                           // as in v1::Place
  std::string state_folder;                   // made if it is not there; of this keeper alone
  std::string worker;                         // path of trireme-worker
  std::vector<std::string> worker_arguments;  // before the keeper's own
};

}  // namespace trireme::keeper
