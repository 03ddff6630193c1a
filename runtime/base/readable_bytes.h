// Sizes as people read them: "1.50 GiB", of three digits.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::base {

std::string ReadableBytes(uint64_t bytes);

}  // namespace trireme::base
