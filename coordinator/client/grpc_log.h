// gRPC and protobuf write their own complaints (a failed handshake, say) to stderr, in a format of
// their own; a program that promises lines of JSON, or none, hears them instead.
#pragma once

#include <string>

namespace trireme::client {

// From now on, for the whole process. `hear` is called from any thread, with one line; null drops
// them.
void HearGrpc(void (*hear)(const std::string& line));

}  // namespace trireme::client
