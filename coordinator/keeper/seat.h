// What the ranks of an attempt on this node are to know, and who may call himself one of them.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::keeper {

struct Seat {
  uint64_t job_id = 0;
  uint32_t attempt = 0;
  bool wanted = false;      // else a rank that asks is a leftover
  uint32_t first_rank = 0;  // of this node's, a contiguous run
  uint32_t ranks_here = 0;
  uint32_t ranks = 0;     // in all
  std::string plan_file;  // of the coordinator
  std::string socket;     // where ranks dial; its folder is there while ranks may come
  std::string store;      // whose job it is: stores number theirs alike
  bool launches = false;  // mpirun is started here
  // Its folder, whether it is there yet or not; empty: no group here.
  std::string control_group = "";

  bool operator==(const Seat&) const = default;
};

// What ranks of an attempt here have said of their steps: one that was done after `since_ns`
// (base::BoottimeNs; 0: nobody knows).
struct StepNews {
  uint64_t job_id = 0;
  uint32_t attempt = 0;
  uint64_t step = 0;
  int64_t since_ns = 0;
  std::string store = "";
};

}  // namespace trireme::keeper
