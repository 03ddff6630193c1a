// What of a job is lifted out of its message, so that the store is asked for it without reading
// all.
#pragma once

#include <string>

#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// It has not ended, or its attempt may still have ranks: a daemon that starts has to know it.
bool IsLive(const v1::Job& job);

// The folder that its run folder lies in; empty: none.
std::string RunParentOf(const v1::Job& job);

}  // namespace trireme::coordinator
