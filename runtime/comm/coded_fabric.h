// CodedFabric: the decorator that says which calls are coded. Callers announce what could be coded
// (OperationOptions::coding); here stands whether it is: off, on, or by a CodingSwitch, and never
// for small ones. The codec itself is an algorithm of the communicator (docs/adr/0005).
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/comm/coding.h"
#include "runtime/comm/communicator.h"

namespace trireme::comm {

enum class CodingMode : uint8_t {
  kOff,   // nothing is coded; calls that announce a coding only report
  kOn,    // whatever announces it and is large enough; bits are the same in every run
  kAuto,  // of these, the calls whose Coding::chooser says so: bits depend on timing
};

// The same on all ranks of a job.
struct CodedOptions {
  CodingMode mode = CodingMode::kOff;
  // Calls of fewer bytes of floats go plain: latency, not bytes, is their time.
  int64_t least_bytes = 64 << 10;
  // Gets the reports of all calls that announce a coding and name no totals of their own. Outlives
  // the fabric.
  CodingTotals* totals = nullptr;
};

// A group alone, whose axis has a mode of its own. The group has room for coding unless the mode is
// off.
std::unique_ptr<Communicator> MakeCodedCommunicator(std::unique_ptr<Communicator> group,
                                                    const CodedOptions& options);
// Takes the fabric over; its groups have room for coding (CodingRoom) unless the mode is off.
std::unique_ptr<Fabric> MakeCodedFabric(std::unique_ptr<Fabric> fabric,
                                        const CodedOptions& options);

}  // namespace trireme::comm
