// FNV-1a, 64 bits: tells texts apart that nobody chose to be alike.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::base {

constexpr uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3;
  }
  return hash;
}

}  // namespace trireme::base
