// Window: the memory a group's ranks share, and who may write which part of it when.
#pragma once

#include <cstddef>
#include <span>

namespace trireme::comm {

struct Group;

class Window {
 public:
  Window(const Group* group, std::span<std::byte> memory) : group_(group), memory_(memory) {}

 private:
  const Group* group_;
  std::span<std::byte> memory_;
};

}  // namespace trireme::comm
