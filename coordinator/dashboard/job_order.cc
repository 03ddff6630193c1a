// A token is how many jobs that have not ended were given, or "ended-" and the table's own token.
#include "coordinator/dashboard/job_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "coordinator/job_machine/job_machine.h"
#include "runtime/base/status_macros.h"

namespace trireme::dashboard {
namespace {

using coordinator::HasEnded;

constexpr char kEnded[] = "ended-";
constexpr uint32_t kPiece = 1000;
constexpr size_t kMostAtOnce = 10'000;  // of those that have not ended; others are not told of

int RankOf(v1::JobState state) {
  if (HasEnded(state)) return 3;
  if (state == v1::JOB_PAUSED) return 2;
  return state == v1::JOB_PENDING ? 1 : 0;
}

auto KeyOf(const v1::Job& job) {
  const uint32_t position = job.queue_position() == 0 ? UINT32_MAX : job.queue_position();
  return std::make_tuple(RankOf(job.status().state()), position, job.id());
}

// Of the states that `wanted` names (none: all) those that are of an end, or are not.
bool Narrow(v1::ListRequest& wanted, bool ended) {
  std::vector<v1::JobState> states;
  for (int i = v1::JOB_PENDING; i <= v1::JobState_MAX; ++i) {
    const auto state = static_cast<v1::JobState>(i);
    const auto& named = wanted.states();
    const bool asked = named.empty() || std::find(named.begin(), named.end(), state) != named.end();
    if (asked && HasEnded(state) == ended) states.push_back(state);
  }
  wanted.clear_states();
  for (const v1::JobState state : states) wanted.add_states(state);
  return !states.empty();
}

absl::StatusOr<std::vector<v1::Job>> Unended(const coordinator::JobTable& table,
                                             v1::ListRequest wanted) {
  std::vector<v1::Job> jobs;
  if (!Narrow(wanted, false)) return jobs;
  wanted.set_page_size(kPiece);
  do {
    ASSIGN_OR_RETURN(v1::ListResponse list, table.List(wanted));
    for (v1::Job& job : *list.mutable_jobs()) jobs.push_back(std::move(job));
    wanted.set_page_token(list.next_page_token());
  } while (!wanted.page_token().empty() && jobs.size() < kMostAtOnce);
  std::sort(jobs.begin(), jobs.end(),
            [](const v1::Job& a, const v1::Job& b) { return KeyOf(a) < KeyOf(b); });
  return jobs;
}

}  // namespace

absl::StatusOr<JobPage> OrderedJobs(const coordinator::JobTable& table, v1::ListRequest wanted,
                                    const std::string& token, uint32_t size) {
  JobPage page;
  wanted.clear_page_token();
  if (token.starts_with(kEnded)) {
    wanted.set_page_token(token.substr(sizeof(kEnded) - 1));
  } else {
    size_t begin = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), begin);
    if (!token.empty() && (error != std::errc() || end != token.data() + token.size())) {
      return absl::InvalidArgumentError("page: expected the next_page of an answer");
    }
    ASSIGN_OR_RETURN(page.jobs, Unended(table, wanted));
    begin = std::min(begin, page.jobs.size());
    page.jobs.erase(page.jobs.begin(), page.jobs.begin() + static_cast<std::ptrdiff_t>(begin));
    if (page.jobs.size() > size) {
      page.jobs.resize(size);
      page.next = fmt::format("{}", begin + size);
      return page;
    }
  }
  const bool full = page.jobs.size() == size;
  if (!Narrow(wanted, true)) return page;
  wanted.set_page_size(full ? 1 : size - static_cast<uint32_t>(page.jobs.size()));
  ASSIGN_OR_RETURN(v1::ListResponse list, table.List(wanted));
  if (full) {
    if (list.jobs_size() > 0) page.next = kEnded;
    return page;
  }
  if (!list.next_page_token().empty()) page.next = kEnded + list.next_page_token();
  for (v1::Job& job : *list.mutable_jobs()) page.jobs.push_back(std::move(job));
  return page;
}

}  // namespace trireme::dashboard
