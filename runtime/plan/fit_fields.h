// The fields whose values trade time for bytes and leave the meaning of a result alone, as a table.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// A field that trades time for memory, and its values.
struct FitField {
  const char* path;
  // Those that may take less memory than the job's own, cheapest first.
  std::vector<std::string> (*saving)(const v1::Plan& plan);
  // Every one, the job's own among them, for the table of choices; null: not in it.
  std::vector<std::string> (*all)(const v1::Plan& plan);
  std::string (*now)(const v1::JobSpec& job);  // the job's own value
  void (*set)(const std::string& value, v1::JobSpec& job);
  bool other_numerics = false;
};

std::span<const FitField> FitFields();

}  // namespace trireme::plan
