// Paths to file systems by the kernel's table alone.
#include "coordinator/disk_calls/mounts.h"

#include <catch2/catch.hpp>
#include <string>

namespace trireme::coordinator {
namespace {

constexpr char kTable[] =
    "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "30 22 0:39 / /data rw,relatime shared:5 - nfs4 server:/export rw\n"
    "31 30 0:40 / /data/my\\040runs rw - nfs4 other:/runs rw\n"
    "32 30 0:41 / /data rw shared:6 master:7 - nfs4 newer:/export rw\n"
    "no line of it\n";

}  // namespace

TEST_CASE("the deepest mount has a path, of several at one folder the last") {
  const auto mounts = ParseMounts(kTable);
  REQUIRE(mounts.size() == 4);
  CHECK(MountIn(mounts, "/home/ann").device == "254:0");
  CHECK(MountIn(mounts, "/data/x").source == "newer:/export");
  CHECK(MountIn(mounts, "/data").device == "0:41");
  CHECK(MountIn(mounts, "/database/x").device == "254:0");
  CHECK(MountIn(mounts, "/data/my runs/7").folder == "/data/my runs");
  CHECK(MountIn(mounts, "/home/../data/./x/").type == "nfs4");
}

TEST_CASE("a table that says nothing leaves one file system") {
  CHECK(MountIn(ParseMounts(""), "/x").device.empty());
  CHECK(MountIn(ParseMounts("\n - \nx - y\n"), "/x").folder == "/");
}

TEST_CASE("this machine's table knows /proc") {
  MountTable table;
  CHECK(table.Of("/proc/self").type == "proc");
  CHECK(table.Of("/proc/self").device != table.Of("/").device);
}

}  // namespace trireme::coordinator
