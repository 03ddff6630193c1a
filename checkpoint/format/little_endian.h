// Numbers in bytes that go to another machine: the lowest byte first, on no boundary. Internal.
#pragma once

#include <cstddef>
#include <span>

namespace trireme::checkpoint {

// Into bytes[at, at + sizeof(Number)).
template <typename Number>
void StoreLittle(std::span<std::byte> bytes, size_t at, Number value) {
  for (size_t i = 0; i < sizeof(Number); ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i) & 255);
  }
}

template <typename Number>
Number LoadLittle(std::span<const std::byte> bytes, size_t at) {
  Number value = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    value = static_cast<Number>(value | static_cast<Number>(bytes[at + i]) << (8 * i));
  }
  return value;
}

}  // namespace trireme::checkpoint
