// The arena's mapping is what was asked for: aligned, zero, and not a page more.
#include "runtime/tensor/memory.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>

namespace trireme::tensor {
namespace {

// A system call reads the byte, so that a fault is an error number and no signal.
bool Readable(const std::byte* at) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const bool readable = write(ends[1], at, 1) == 1;
  if (!readable) CHECK(errno == EFAULT);
  close(ends[0]);
  close(ends[1]);
  return readable;
}

TEST_CASE("memory: nothing is mapped behind the last page") {
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t huge_bytes = size_t{2} << 20;
  for (const size_t bytes : {size_t{1}, page_bytes, page_bytes + 1, huge_bytes - 8, huge_bytes,
                             3 * huge_bytes + page_bytes}) {
    for (const int threads : {0, 2}) {
      auto memory = HugeMemory::Map(bytes, {.prefault_threads = threads});
      REQUIRE(memory.ok());
      CHECK(memory->size() == bytes);
      CHECK(reinterpret_cast<uintptr_t>(memory->data()) % huge_bytes == 0);
      CHECK(memory->data()[0] == std::byte{0});
      CHECK(memory->data()[bytes - 1] == std::byte{0});
      const size_t end = (bytes + page_bytes - 1) / page_bytes * page_bytes;
      CHECK(Readable(memory->data() + end - 1));
      CHECK_FALSE(Readable(memory->data() + end));
      CHECK_FALSE(Readable(memory->data() + end + page_bytes - 1));
    }
  }
}

}  // namespace
}  // namespace trireme::tensor
