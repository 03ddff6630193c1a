// Names and keys that nobody is to guess.
#pragma once

#include <cstddef>
#include <string>

namespace trireme::base {

// So many hex digits, an even number up to 512, of the kernel's randomness (getrandom), which is
// waited for only while a machine starts.
std::string RandomHex(size_t digits);

}  // namespace trireme::base
