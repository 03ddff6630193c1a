// What `trireme plan` says of how transfers are coded: of gradients as bf16 their bytes; of
// compression which it would code, and whether that pays on the job's link, by the codec's speed on
// this machine.
#pragma once

#include <string>

#include "trireme/v1/plan.pb.h"

namespace trireme::cli {

// Empty where gradients travel as they are. Ends with a newline.
std::string GradientTransferLines(const v1::Plan& plan);

// Empty where compression is off and no link is given, or no transfer could be coded. Measures the
// codec for some milliseconds. Ends with a newline.
std::string CompressionLines(const v1::Plan& plan, int ranks);

}  // namespace trireme::cli
