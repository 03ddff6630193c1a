// Copies of all lengths between odd addresses.
#include "runtime/comm/stream_copy.h"

#include <catch2/catch.hpp>
#include <vector>

namespace trireme::comm {

TEST_CASE("a copy past the caches writes all its bytes and no other, from and to any address") {
  std::vector<std::byte> from(2000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 37 + i / 256);
  const std::byte kFill{0xee};
  size_t wrong = 0;
  for (size_t begin = 0; begin < 130; begin += 3) {
    for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 500, 1024, 1601}) {
      std::vector<std::byte> to(2000, kFill);
      const size_t source = begin * 7 % 97;
      StreamCopy(to.data() + begin, from.data() + source, bytes);
      for (size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= begin && i < begin + bytes;
        wrong += to[i] != (inside ? from[source + i - begin] : kFill);
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace trireme::comm
