// Of two daemons that claim a folder, one has it.
#include "coordinator/daemon/run_claim.h"

#include <nlohmann/json.hpp>

#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/run_files/run_owner.h"
#include "runtime/base/durable.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"
#include "runtime/json/json_text.h"
#include "runtime/run_claim/run_claim.h"

namespace trireme::coordinator {
namespace {

using base::Text;
using nlohmann::json;

// Far from where numbers end, farther from where jobs get.
constexpr uint32_t kMostAttempts = 1u << 30;

absl::Status OnDisk(const absl::Status& status) {
  return status.ok() ? status : absl::UnavailableError(base::MessageOf(status));
}

absl::Status WriteOwner(const std::string& path, const v1::Job& job,
                        const v1::StorePosition& store) {
  const json text = {{"version", 1},
                     {"job", job.id()},
                     {"store", store.store()},
                     {"epoch", store.epoch()},
                     {"opening", store.opening()}};
  const absl::Status written = base::WriteNewFile(path, json_text::Write(text, 1) + "\n");
  return absl::IsAlreadyExists(written) ? absl::OkStatus() : written;  // who has it is read next
}

}  // namespace

absl::Status ClaimRunFolder(const v1::Job& job, const v1::StorePosition& store) {
  const std::string& folder = job.run_folder();
  RETURN_IF_ERROR(OnDisk(base::MakeFolders(folder)));
  const std::string path = folder + "/run.json";
  absl::StatusOr<RunOwner> owner = ReadRunOwner(folder);
  if (absl::IsNotFound(owner.status())) {
    ASSIGN_OR_RETURN(const uint32_t newest, keeper::NewestAttemptFolder(folder));
    if (job.status().attempt() == 1 && newest > 0) {
      return absl::InvalidArgumentError(
          Text("the run folder ", folder, " has attempts of another job; move it away, or submit ",
               "the job again: it gets another number"));
    }
    RETURN_IF_ERROR(OnDisk(WriteOwner(path, job, store)));
    owner = ReadRunOwner(folder);
  }
  if (absl::IsInvalidArgument(owner.status())) return owner.status();
  if (!owner.ok()) return OnDisk(owner.status());
  if (owner->job == job.id() && owner->store == store.store()) return absl::OkStatus();
  return absl::InvalidArgumentError(Text(
      "the run folder ", folder, " is that of job ", owner->job, " of the store ", owner->store,
      ", as ", path, " says; move it away, or submit the job again: it gets ", "another number"));
}

absl::Status ClaimForAttempt(const v1::Job& job, uint32_t attempt, const std::string& store) {
  const absl::Status claimed = run_claim::WriteRunClaim(
      job.run_folder(), {.job = job.id(), .attempt = attempt, .store = store});
  return claimed.ok() ? claimed : absl::UnavailableError(base::MessageOf(claimed));
}

absl::Status RevokeClaim(const v1::Job& job, const std::string& store) {
  const uint32_t next = job.status().attempt() + 1;
  const absl::StatusOr<run_claim::RunClaim> claim = run_claim::ReadRunClaim(job.run_folder());
  if (claim.ok() && claim->attempt > next) {
    return absl::FailedPreconditionError(
        Text("attempt ", claim->attempt, " counts in ", job.run_folder(),
             ", which this store does not know: trireme nodes adopt"));
  }
  return ClaimForAttempt(job, next, store);
}

absl::StatusOr<std::optional<UnknownAttempt>> FindUnknownAttempt(const v1::Job& job,
                                                                 const std::string& store) {
  ASSIGN_OR_RETURN(const uint32_t newest, keeper::NewestAttemptFolder(job.run_folder()));
  if (newest < job.status().attempt()) return std::nullopt;
  const std::string path = Text(job.run_folder(), "/attempts/", newest);
  if (newest > kMostAttempts) {
    return absl::InvalidArgumentError(Text(path, ": no attempt has such a number; move it away"));
  }
  UnknownAttempt unknown;
  unknown.number = newest;
  unknown.over = keeper::IsOver(path);
  // One that does not say whose it is may be anybody's.
  auto owner = keeper::ReadOwner(path).value_or(keeper::AttemptOwner());
  const bool of_this_job = owner.job_id == job.id() && owner.store.store() == store;
  unknown.done = of_this_job && keeper::ExitCodeOf(path) == base::kOk;
  unknown.nodes = std::move(owner.nodes);
  return unknown;
}

}  // namespace trireme::coordinator
