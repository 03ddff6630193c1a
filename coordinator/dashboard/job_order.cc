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

int RankOf(v1::JobState state) {
  if (HasEnded(state)) return 3;
  if (state == v1::JOB_PAUSED) return 2;
  return state == v1::JOB_PENDING ? 1 : 0;
}

// What waits, in the order of the scheduler.
using Key = std::tuple<int, int64_t, int64_t, uint64_t>;
Key KeyOf(const v1::Job& job) {
  const bool waits = job.status().state() == v1::JOB_PENDING;
  return {RankOf(job.status().state()), waits ? -int64_t{job.priority()} : 0,
          waits ? job.submitted_unix_ns() : 0, job.id()};
}

bool IsWanted(const v1::Job& job, const v1::ListRequest& wanted) {
  if (!wanted.owner().empty() && job.owner() != wanted.owner()) return false;
  const auto& states = wanted.states();
  return std::find(states.begin(), states.end(), job.status().state()) != states.end();
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

std::vector<uint64_t> Unended(const coordinator::JobTable& table, v1::ListRequest wanted) {
  std::vector<uint64_t> ids;
  if (!Narrow(wanted, false)) return ids;
  std::vector<Key> keys;
  table.ForEach([&](const v1::Job& job, const v1::Progress*) {
    if (IsWanted(job, wanted)) keys.push_back(KeyOf(job));
  });
  std::sort(keys.begin(), keys.end());
  for (const Key& key : keys) ids.push_back(std::get<uint64_t>(key));
  return ids;
}

}  // namespace

absl::StatusOr<JobPage> OrderedJobs(const coordinator::JobTable& table,
                                    coordinator::JobStore* store, v1::ListRequest wanted,
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
    const std::vector<uint64_t> ids = Unended(table, wanted);
    size_t at = std::min(begin, ids.size());
    for (; at < ids.size() && page.jobs.size() < size; ++at) {
      auto job = table.Get(ids[at], store);
      if (absl::IsNotFound(job.status())) continue;
      RETURN_IF_ERROR(job.status());
      job->clear_spec();
      page.jobs.push_back(*std::move(job));
    }
    if (at < ids.size()) {
      page.next = fmt::format("{}", at);
      return page;
    }
  }
  const bool full = page.jobs.size() == size;
  if (!Narrow(wanted, true)) return page;
  wanted.set_page_size(full ? 1 : size - static_cast<uint32_t>(page.jobs.size()));
  ASSIGN_OR_RETURN(v1::ListResponse list, table.List(wanted, store));
  if (full) {
    if (list.jobs_size() > 0 || !list.next_page_token().empty()) page.next = kEnded;
    return page;
  }
  if (!list.next_page_token().empty()) page.next = kEnded + list.next_page_token();
  for (v1::Job& job : *list.mutable_jobs()) page.jobs.push_back(std::move(job));
  return page;
}

}  // namespace trireme::dashboard
