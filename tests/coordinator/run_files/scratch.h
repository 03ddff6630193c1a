// A folder for a test.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

namespace trireme::coordinator {

// Gone with all that is in it.
class Scratch {
 public:
  Scratch() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/trireme-scratch-XXXXXX";
};

}  // namespace trireme::coordinator
