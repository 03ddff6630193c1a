#include "coordinator/cli/job_lookup.h"

#include <cstdint>

#include "coordinator/cli/job_text.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::cli {
namespace {

constexpr int kMostPages = 10'000;
constexpr uint32_t kPageSize = 1000;

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() <= 19 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

absl::StatusOr<v1::ListResponse> ListAll(client::Client& client, v1::ListRequest request) {
  request.set_page_size(kPageSize);
  v1::ListResponse all;
  for (int page = 0; page < kMostPages; ++page) {
    ASSIGN_OR_RETURN(const v1::ListResponse response, client.Call(request));
    all.mutable_jobs()->MergeFrom(response.jobs());
    if (response.next_page_token().empty()) return all;
    request.set_page_token(response.next_page_token());
  }
  return absl::InternalError("the coordinator's list of jobs has no end");
}

absl::StatusOr<v1::Job> FindJob(client::Client& client, const std::string& job) {
  v1::GetRequest get;
  if (IsNumber(job)) {
    get.set_job_id(std::stoull(job));
    return client.Call(get);
  }
  // As of an unset variable in a script; to the coordinator no name means every job.
  if (job.empty()) {
    return absl::InvalidArgumentError(
        "JOB is empty, expected the number or the name of a job; trireme list --all shows them");
  }
  v1::ListRequest request;
  request.set_name(job);
  ASSIGN_OR_RETURN(const v1::ListResponse list, ListAll(client, request));
  if (list.jobs().empty()) {
    return absl::NotFoundError(
        base::Text("there is no job of the name ", job, "; trireme list --all shows them"));
  }
  std::string alive;
  int count = 0;
  for (const v1::Job& one : list.jobs()) {
    if (HasEnded(one.status().state())) continue;
    alive +=
        base::Text(count++ == 0 ? "" : ", ", one.id(), " (", StateWord(one.status().state()), ")");
  }
  if (count > 1) {
    return absl::InvalidArgumentError(base::Text(
        "several jobs of the name ", job, " have not ended: ", alive, "; say which by its number"));
  }
  get.set_job_id(list.jobs(0).id());
  return client.Call(get);
}

}  // namespace trireme::cli
