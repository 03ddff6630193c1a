#include "runtime/run_claim/run_claim.h"

#include <nlohmann/json.hpp>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"
#include "runtime/json/json_text.h"

namespace trireme::run_claim {
namespace {

constexpr int kVersion = 1;
constexpr size_t kMostBytes = 4096;

std::string PathIn(const std::string& run_folder) { return run_folder + "/claim.json"; }

}  // namespace

absl::Status WriteRunClaim(const std::string& run_folder, const RunClaim& claim) {
  const nlohmann::json text = {{"version", kVersion},
                               {"job", claim.job},
                               {"attempt", claim.attempt},
                               {"store", claim.store}};
  return base::WriteWholeFile(PathIn(run_folder), json_text::Write(text, 1) + "\n");
}

absl::StatusOr<RunClaim> ReadRunClaim(const std::string& run_folder) {
  const std::string path = PathIn(run_folder);
  const absl::StatusOr<std::string> text = base::ReadPlainFile(path, kMostBytes);
  const bool other =
      absl::IsFailedPrecondition(text.status()) || absl::IsResourceExhausted(text.status());
  if (!text.ok() && !other) return text.status();
  const auto said = json_text::Parse(text.value_or(""));
  try {
    return RunClaim{said.at("job").get<uint64_t>(), said.at("attempt").get<uint32_t>(),
                    said.at("store").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return absl::DataLossError(base::Text(path, " is no claim; remove it"));
  }
}

absl::Status CheckRunClaim(const std::string& run_folder, uint32_t attempt) {
  const absl::StatusOr<RunClaim> claim = ReadRunClaim(run_folder);
  if (absl::IsNotFound(claim.status())) return absl::OkStatus();
  RETURN_IF_ERROR(claim.status());
  if (claim->attempt <= attempt) return absl::OkStatus();
  return absl::FailedPreconditionError(
      base::Text("attempt ", claim->attempt, " of the job has replaced attempt ", attempt, ", as ",
                 PathIn(run_folder), " says: this one publishes nothing more"));
}

}  // namespace trireme::run_claim
