#include "runtime/base/random_hex.h"

#include <sys/random.h>

#include "runtime/base/check.h"

namespace trireme::base {

std::string RandomHex(size_t digits) {
  constexpr size_t kMostBytes = 256;  // that come whole, whatever signal comes
  unsigned char bytes[kMostBytes];
  TRIREME_CHECK(digits % 2 == 0 && digits / 2 <= kMostBytes);
  TRIREME_CHECK(getrandom(bytes, digits / 2, 0) == static_cast<ssize_t>(digits / 2));
  std::string text;
  for (size_t i = 0; i < digits; ++i)
    text += "0123456789abcdef"[bytes[i / 2] >> (4 * (i % 2)) & 15];
  return text;
}

}  // namespace trireme::base
