// A plan as the dashboard draws it: mesh, stages with their layers, bytes of each.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/dashboard/json_text.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::dashboard {

// The plan in the bytes of a plan.pb, which ranks could have written anew: ResourceExhausted if it
// is longer than a plan for any cluster would be, also where few bytes unfold to many.
absl::StatusOr<v1::Plan> ReadPlan(std::string_view bytes);

// Of many stages the first and the last 32. `yaml`: the job file.
Json PlanJson(const v1::Plan& plan);

// Texts of the plans that were asked for last: plans are long, and the same for a whole attempt.
// Threads: any.
class PlanCache {
 public:
  // Null: it is not here.
  std::shared_ptr<const std::string> Find(uint64_t job_id, uint32_t attempt);
  std::shared_ptr<const std::string> Put(uint64_t job_id, uint32_t attempt, std::string text);

 private:
  static constexpr size_t kMost = 32;
  struct Entry {
    std::pair<uint64_t, uint32_t> key;
    std::shared_ptr<const std::string> text;
  };
  absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // newest first
};

}  // namespace trireme::dashboard
