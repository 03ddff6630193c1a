// What this machine is like: measured, not judged (rules.h). Nothing here waits for anybody.
#pragma once

#include <string>

#include "coordinator/checkup/rules.h"

namespace trireme::checkup {

Limits MeasureLimits();
// Of a folder, which is not made. Tries to write a file there, which is gone afterwards.
Space MeasureSpace(const std::string& folder);
Network MeasureNetwork();
// Binds HOST:PORT for a moment. InvalidArgument: no address of this machine; PermissionDenied;
// FailedPrecondition: taken, or another obstacle.
absl::Status TryListening(const std::string& address);
bool ClockInStep();
std::string HugePageSetting();
// Of this process's user; files are read below `root`, "" outside of tests.
Logout LookAtLogout(const std::string& root = "");
// Below `root`, "" outside of tests.
ControlGroups LookAtControlGroups(const std::string& root = "");

}  // namespace trireme::checkup
