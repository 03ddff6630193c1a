#include "coordinator/scheduler/queue.h"

#include <fmt/format.h>

#include "runtime/base/check.h"

namespace trireme::coordinator {
namespace {

std::string KindOf(const Asked& asked) {
  std::string kind = fmt::format("{} {} ", asked.runs_ns, asked.waits_for_others);
  for (const std::string& node : asked.avoids) kind += fmt::format("{} {} ", node.size(), node);
  return kind + asked.resources.SerializeAsString();
}

}  // namespace

uint64_t Queue::Add(const Waiting& job) {
  const Asked& asked = job.asked;
  const bool again = job.waits_since_unix_ns != job.submitted_unix_ns;
  LineKey key{KindOf(asked), asked.user, job.priority, again ? job.waits_since_unix_ns : 0};
  const auto [at, is_new] = lines_.try_emplace(std::move(key));
  Line& line = at->second;
  if (is_new) {
    line.number = next_line_++;
    line.asked = std::make_shared<const Asked>(asked);
    line.kind = at->first.kind;
    line.waited_again_ns = at->first.waited_again_ns;
  }
  const QueueKey place{-int64_t{job.priority}, job.submitted_unix_ns, job.job_id};
  TRIREME_CHECK(places_.try_emplace(job.job_id, at, place).second);
  line.jobs.insert(place);
  return line.number;
}

void Queue::Remove(uint64_t job_id) {
  const auto found = places_.find(job_id);
  if (found == places_.end()) return;
  const auto& [line, place] = found->second;
  line->second.jobs.erase(place);
  if (line->second.jobs.empty()) lines_.erase(line);
  places_.erase(found);
  reservations_.erase(job_id);
}

std::vector<const Queue::Line*> Queue::lines() const {
  std::vector<const Line*> lines;
  lines.reserve(lines_.size());
  for (const auto& [key, line] : lines_) lines.push_back(&line);
  return lines;
}

void Queue::SetReservations(std::map<uint64_t, Reservation> reservations) {
  reservations_ = std::move(reservations);
}

void Queue::MoveReservations(int64_t by_ns) {
  for (auto& [job, reservation] : reservations_) reservation.start_unix_ns += by_ns;
}

}  // namespace trireme::coordinator
