// What one check says.
#pragma once

#include <string>

namespace trireme::checkup {

enum class Verdict { kOk, kWarn, kFail, kSkip };

struct Finding {
  std::string name;  // "open files"
  Verdict verdict = Verdict::kOk;
  std::string seen;  // what there is, and what of it is amiss
  std::string fix;   // what to do; empty: nothing
};

// "ok", "warn", "fail", "skip".
std::string WordOf(Verdict verdict);

}  // namespace trireme::checkup
