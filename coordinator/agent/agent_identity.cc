#include "coordinator/agent/agent_identity.h"

#include <fmt/format.h>

#include <cctype>

#include "runtime/base/random_hex.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"

namespace trireme::agent {
namespace {

constexpr size_t kDigits = 32;

bool IsId(const std::string& text) {
  if (text.size() != kDigits) return false;
  for (const char c : text) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::string> AgentIdOf(const std::string& state_folder) {
  const std::string path = state_folder + "/agent-id";
  absl::StatusOr<std::string> text = base::ReadWholeFile(path);
  if (absl::IsNotFound(text.status())) {
    std::string drawn = base::RandomHex(kDigits);
    RETURN_IF_ERROR(base::WriteWholeFile(path, drawn + "\n", 0600));
    return drawn;
  }
  RETURN_IF_ERROR(text.status());
  while (!text->empty() && text->back() == '\n') text->pop_back();
  if (IsId(*text)) return text;
  return absl::DataLossError(fmt::format(
      "{}: names no agent; remove the file (the node's name is free when its lease is over)",
      path));
}

}  // namespace trireme::agent
