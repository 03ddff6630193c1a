// A run folder for the tests of the dashboard, and how they read what it answers.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "coordinator/dashboard/json_text.h"

namespace trireme::dashboard {

class RunFolder {
 public:
  RunFolder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~RunFolder() { std::filesystem::remove_all(path_); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    std::ofstream(*this / name, std::ios::binary) << text;
  }
  void Append(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name, std::ios::binary | std::ios::app) << text;
  }

 private:
  std::string path_ = "/tmp/trireme-dashboard-XXXXXX";
};

inline Json Parsed(const std::string& text) {
  INFO(text);
  Json json = Json::parse(text, nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  return json;
}

}  // namespace trireme::dashboard
