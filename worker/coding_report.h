// What compression did, as rank 0 writes and says it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::worker {

// Bytes that all ranks sent of transfers that the plan marks, plain over coded; 1 where there were
// none.
struct CodingRatios {
  double gradients = 1;
  double messages = 1;
};
CodingRatios RatiosOf(const std::vector<engine::RankCoding>& ranks);

// For report.json: per axis the sums, and a line for each rank.
nlohmann::ordered_json CodingJson(const std::vector<engine::RankCoding>& ranks);

// Why a bound is too loose for the model, by what was measured in this step: too large an error in
// at least half of the transfers. Empty: it is not.
std::string LooseBound(const engine::StepReport& report, const v1::CompressionSpec& spec);

}  // namespace trireme::worker
