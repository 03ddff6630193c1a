// A test case that cannot run here says so and returns: TRIREME_SKIP("not here: a second core").
// Its program then exits with 77 if nothing failed (tests/test_main.cc), which ctest counts apart.
// One whose need deploy/install_packages covers begins its reason with "not installed: ".
#pragma once

#include <string_view>

namespace trireme::tests {

void NoteSkip(std::string_view reason);

}  // namespace trireme::tests

#define TRIREME_SKIP(reason)              \
  do {                                    \
    ::trireme::tests::NoteSkip((reason)); \
    return;                               \
  } while (false)
