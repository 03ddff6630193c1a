// What is said of attempts whose nodes are lost, and which of them may be replaced.
#pragma once

#include <string>

#include "trireme/v1/control.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

std::string GoneText(const v1::Node& node);
std::string LostText(const std::string& node);
// As its people want it: `resources.on_lost_node`.
bool MayBeReplaced(const v1::Job& job);

}  // namespace trireme::coordinator
