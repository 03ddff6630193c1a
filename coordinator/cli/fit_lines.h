// What `trireme plan` says of the choices that trade time for memory, and what `--fit` answers.
#pragma once

#include <string>

#include "runtime/plan/fit.h"

namespace trireme::cli {

// A table of the bytes that the largest rank takes with each value of a few fields, below a line
// of heading; empty where no choice could be planned. Ends with a newline.
std::string ChoiceLines(const v1::Plan& plan);

// For a limit of each rank. The table of what was planned, and the smallest change that fits or by
// how much the best misses. Ends with a newline.
std::string FitLines(const plan::FitReport& fit, const plan::FitLimit& limit);

// The same as one object of JSON on stdout.
void PrintFitAsJson(const plan::FitReport& fit, const plan::FitLimit& limit);

}  // namespace trireme::cli
