// Who and where this process is.
#pragma once

#include <string>

namespace trireme::base {

// The path of a program that is installed beside ours; its bare name if ours is not known.
std::string ProgramBesideUs(const std::string& name);

// Of this machine, without its domain unless that is how it calls itself.
std::string HostName();
// Of this start of the machine; empty if /proc does not say.
std::string BootId();

}  // namespace trireme::base
