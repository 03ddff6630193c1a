#include "runtime/base/folder_names.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::base {

absl::Status VisitNames(const std::string& folder,
                        const std::function<void(const std::string& name)>& visit) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    visit(entry->path().filename().string());
    entry.increment(error);
  }
  if (!error) return absl::OkStatus();
  const std::string text = Text(folder, ": cannot be listed: ", error.message());
  return error == std::errc::no_such_file_or_directory ? absl::NotFoundError(text)
                                                       : absl::UnavailableError(text);
}

absl::StatusOr<std::vector<std::string>> FolderNames(const std::string& folder) {
  std::vector<std::string> names;
  RETURN_IF_ERROR(VisitNames(folder, [&](const std::string& name) { names.push_back(name); }));
  return names;
}

std::optional<uint64_t> NumberIn(std::string_view name, uint64_t most) {
  uint64_t number = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number > most) return std::nullopt;
  return number;
}

absl::StatusOr<uint64_t> LargestNumber(const std::string& folder, uint64_t most) {
  uint64_t largest = 0;
  const absl::Status visited = VisitNames(folder, [&](const std::string& name) {
    largest = std::max(largest, NumberIn(name, most).value_or(0));
  });
  if (!visited.ok() && !absl::IsNotFound(visited)) return visited;
  return largest;
}

}  // namespace trireme::base
