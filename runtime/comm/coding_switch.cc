#include "runtime/comm/coding_switch.h"

#include <algorithm>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace trireme::comm {

bool CodingSwitch::coded() const {
  if (steady_left_ > 0 || due()) return choice_;
  return trial_calls_ % 2 == 1;
}

void CodingSwitch::Record(double seconds) {
  if (due()) return;
  if (steady_left_ > 0) {
    --steady_left_;
    return;
  }
  double* time = trial_calls_ % 2 == 1 ? &own_.coded_s : &own_.plain_s;
  *time = trial_calls_ < 2 ? seconds : std::min(*time, seconds);
  ++trial_calls_;
}

void CodingSwitch::Agree(const CodingTimes& slowest) {
  TRIREME_CHECK(due());
  const double now = choice_ ? slowest.coded_s : slowest.plain_s;
  const double other = choice_ ? slowest.plain_s : slowest.coded_s;
  const bool change = other < now * (1 - options_.margin);
  choice_ = choice_ != change;
  period_ = change ? options_.shortest_period : std::min(2 * period_, options_.longest_period);
  steady_left_ = period_;
  trial_calls_ = 0;
}

absl::Status AgreeOnCoding(std::span<Communicator* const> groups,
                           std::span<CodingSwitch* const> switches, tensor::Stream& stream,
                           std::chrono::milliseconds deadline) {
  std::vector<double> times;
  for (const CodingSwitch* one : switches) {
    if (!one->due()) continue;
    times.push_back(one->own_times().plain_s);
    times.push_back(one->own_times().coded_s);
  }
  if (times.empty()) return absl::OkStatus();
  for (Communicator* group : groups) {
    const Ticket ticket = group->AllReduce(times.data(), std::ssize(times), tensor::DType::kF64,
                                           ReduceOp::kMax, stream);
    RETURN_IF_ERROR(group->WaitHost(ticket, deadline));
  }
  size_t at = 0;
  for (CodingSwitch* one : switches) {
    if (!one->due()) continue;
    one->Agree({times[at], times[at + 1]});
    at += 2;
  }
  return absl::OkStatus();
}

}  // namespace trireme::comm
