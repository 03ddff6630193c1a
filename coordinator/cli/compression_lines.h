// What `trireme plan` says of compression: which transfers are coded, and whether that pays on the
// job's link, by the codec's speed on this machine.
#pragma once

#include <string>

#include "trireme/v1/plan.pb.h"

namespace trireme::cli {

// Empty where compression is off and no link is given, or no transfer could be coded. Measures the
// codec for some milliseconds. Ends with a newline.
std::string CompressionLines(const v1::Plan& plan, int ranks);

}  // namespace trireme::cli
