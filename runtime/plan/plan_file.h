// The bytes of a plan wherever it leaves a process: the Plan message, gzipped. Thousands of alike
// instructions shrink tenfold, so that a plan for thousands of ranks stays below gRPC's 4 MiB.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

std::string SerializePlan(const v1::Plan& plan);
// DataLoss if the bytes are no plan; Aborted for one of another version, which passes: it is made
// or read in the middle of an upgrade.
absl::StatusOr<v1::Plan> ParsePlan(std::string_view bytes);

// Of a file. NotFound: "there is no plan PATH"; else the message begins with the path. Blocks on
// the disk.
absl::StatusOr<v1::Plan> ReadPlanFile(const std::string& path);

}  // namespace trireme::plan
