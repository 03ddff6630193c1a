// The coded collectives: AllReduce, ReduceScatter and AllGather of f32 as coded segments, or as
// bf16. Every rank codes its values once, each piece straight to its owner; the owner adds the n
// segments without unpacking them (bf16: in f32), takes its own result from the sum, and sends the
// sum's bytes to all. The same bytes in all as a ring's, one coding and one sum per element
// (docs/adr/0005, 0017).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "runtime/comm/collectives.h"

namespace trireme::comm {

// An algorithm that can find a peer's bytes damaged, and that reports.
class CodedAlgorithm : public Algorithm {
 public:
  // Not ok: damage, naming the peer; Advance then stays false.
  virtual const absl::Status& fault() const = 0;
  // Of the running or last call; the times are without the end.
  virtual const CodingReport& report() const = 0;
};

// How a group cuts and what it may have under way, by its size and memory.
struct CodedRoom {
  int64_t piece_values = 0;  // 0: the memory is too small
  size_t depth = 0;          // pieces under way in each flow
  size_t piece_bytes = 0;    // of a buffer
  size_t requests = 0;       // messages posted at a time
};
CodedRoom CodedRoomFor(int ranks, size_t staging_bytes);
// The least memory that is enough.
size_t LeastCodedBytes(int ranks);

// Allocates all it will ever use.
std::unique_ptr<CodedAlgorithm> MakeCoded(const Group* group, size_t staging_bytes);

}  // namespace trireme::comm
