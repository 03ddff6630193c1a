// What is said of attempts whose nodes are lost, and which of them may be replaced.
#pragma once

#include <chrono>
#include <string>

#include "trireme/v1/control.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

std::string GoneText(const v1::Node& node);
std::string LostText(const std::string& node);
// As its people want it: `resources.on_lost_node`.
bool MayBeReplaced(const v1::Job& job);

// How an attempt with a lost node is replaced. All 0: it is not.
struct LostNodeTimes {
  std::chrono::milliseconds revoke{0};     // after the node's last word its claim is taken
  std::chrono::milliseconds end_after{0};  // without any word an agent ends what it has
  // From the taken claim on: then no agent can have had a word of it for `end_after`, and its kill,
  // with the drift of two clocks, is over. revoke + fence is lost_node_after.
  std::chrono::milliseconds fence{0};
};
LostNodeTimes LostNodeTimesOf(std::chrono::milliseconds lost_node_after);
// Why the current attempt of the job is not replaced although a node of it is lost; empty: it may
// be.
std::string WhyNotFenced(const v1::Job& job, std::chrono::milliseconds lost_node_after);

}  // namespace trireme::coordinator
