// Sizes in messages and tables.
#include "runtime/base/readable_bytes.h"

#include <catch2/catch.hpp>

namespace trireme::base {
namespace {

TEST_CASE("sizes have three digits and a unit") {
  CHECK(ReadableBytes(0) == "0 B");
  CHECK(ReadableBytes(1536) == "1.50 KiB");
  CHECK(ReadableBytes(1629696) == "1.55 MiB");
  CHECK(ReadableBytes(uint64_t{80} << 30) == "80.0 GiB");
}

}  // namespace
}  // namespace trireme::base
