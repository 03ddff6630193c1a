#include "coordinator/run_files/run_owner.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/base/whole_file.h"
#include "runtime/json/json_text.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kMostBytes = 4096;

}  // namespace

absl::StatusOr<RunOwner> ReadRunOwner(const std::string& run_folder) {
  const std::string path = run_folder + "/run.json";
  const absl::StatusOr<std::string> text = base::ReadPlainFile(path, kMostBytes);
  const bool other =
      absl::IsFailedPrecondition(text.status()) || absl::IsResourceExhausted(text.status());
  if (!text.ok() && !other) return text.status();
  const auto said = json_text::Parse(text.value_or(""));
  try {
    return RunOwner{said.at("job").get<uint64_t>(), said.at("store").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError(path + " does not say whose run folder this is");
  }
}

absl::Status CheckRunOwner(const v1::Job& job, const std::string& store) {
  const absl::StatusOr<RunOwner> owner = ReadRunOwner(job.run_folder());
  if (absl::IsNotFound(owner.status())) return absl::OkStatus();
  if (!owner.ok() && !absl::IsInvalidArgument(owner.status())) return owner.status();
  if (owner.ok() && owner->job == job.id() && owner->store == store) return absl::OkStatus();
  return absl::NotFoundError(fmt::format(
      "what lies in {} is another job's, as run.json there says: nothing of it is job {}'s",
      job.run_folder(), job.id()));
}

}  // namespace trireme::coordinator
