// A new folder below /tmp, removed with all that is in it at the end of its scope.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

namespace trireme::tests {

class TemporaryFolder {
 public:
  TemporaryFolder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = "/tmp/trireme-test-XXXXXX";
};

}  // namespace trireme::tests
