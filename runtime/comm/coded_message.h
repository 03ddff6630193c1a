// Coded messages: f32 values from one rank to another within a bound that the sender resolves. A
// message is the absolute bound (8 bytes), then its pieces as a flow (coded_flow.h), the sizes and
// the bound on a channel beside the message's own. Buffers are as many as are made here; a message
// that finds none waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/comm/coded_flow.h"
#include "runtime/comm/coding.h"

namespace trireme::comm {

struct CodedMessageSpec {
  int peer = 0;
  uint32_t channel = 0;
  int64_t piece_values = 0;
};

// Sends one message at a time. All of a rank's are driven under one lock.
class CodedSend {
 public:
  explicit CodedSend(const Group* group);

  void Start(const CodedMessageSpec& spec, std::span<const float> data, const Coding& coding);
  // Moves as far as it goes without waiting, by at most about a MiB; true once all has gone.
  bool Advance(uint64_t* moved);
  // Later messages of the channel may start.
  bool AllPosted() const { return bound_known_ && cursor_.AtEnd(); }
  const CodingReport& report() const { return report_; }

 private:
  void Measure(int64_t* budget);
  void SendBound();
  void SendPiece();

  const Group* group_;
  std::unique_ptr<std::byte[]> buffers_;
  std::unique_ptr<float[]> decoded_;
  CodedMessageSpec spec_;
  std::span<const float> data_;
  Coding coding_;
  int64_t measured_ = 0;  // values looked at for the bound
  double sum_of_squares_ = 0, smallest_ = 0, largest_ = 0;
  uint64_t finite_ = 0;
  bool bound_known_ = false;
  CodedRun run_;
  FlowMessage bound_;
  PieceCursor cursor_;
  OutFlow flow_;
  CodingReport report_;
};

class CodedRecv {
 public:
  explicit CodedRecv(const Group* group);

  // Once the bound has come.
  void Start(const CodedMessageSpec& spec, double bound, std::span<float> data);
  bool Advance(uint64_t* moved);
  bool AllPosted() const { return flow_.AllPosted(); }
  const absl::Status& fault() const { return fault_; }
  const CodingReport& report() const { return report_; }

 private:
  const Group* group_;
  std::unique_ptr<std::byte[]> buffers_;
  std::span<float> data_;
  CodedRun run_;
  int peer_ = 0;
  InFlow flow_;
  absl::Status fault_;
  CodingReport report_;
};

// A group's coded messages under way: `each` sends and as many receives. Messages that it posts at
// a time: requests().
struct CodedMessages {
  CodedMessages(const Group* group, size_t each);
  static size_t requests(size_t each);

  std::vector<std::unique_ptr<CodedSend>> sends;
  std::vector<std::unique_ptr<CodedRecv>> recvs;
  std::vector<CodedSend*> idle_sends;
  std::vector<CodedRecv*> idle_recvs;
};

}  // namespace trireme::comm
