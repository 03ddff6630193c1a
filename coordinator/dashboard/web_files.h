// The files of the browser's side, carried in the program (cmake/Dashboard.cmake writes the table).
#pragma once

#include <span>
#include <string_view>

namespace trireme::dashboard {

struct WebFile {
  std::string_view name;  // "dashboard.js"
  std::string_view content;
};

std::span<const WebFile> WebFiles();

}  // namespace trireme::dashboard
