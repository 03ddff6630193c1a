// What systemd is told (sd_notify(3)), without its library: one datagram.
#pragma once

#include <string>

namespace trireme::coordinator {

// "READY=1", "STOPPING=1", "STATUS=..."; does nothing where $NOTIFY_SOCKET is not set.
void TellSystemd(const std::string& state);

}  // namespace trireme::coordinator
