// On which streams the devices of this program's tests work: `--streams asynchronous` on its
// command line puts all of them on threads, also those of cases that ask for none
// (tests/test_main.cc).
#pragma once

namespace trireme::tests {

inline bool asynchronous_streams = false;

}  // namespace trireme::tests
