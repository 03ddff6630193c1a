// Why a job is as it is, in sentences, and the one thing to do next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/v1/event.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::cli {

struct Explanation {
  std::vector<std::string> sentences;
  std::string next;  // empty: nothing is to be done
};

// `events`: all of the job so far.
Explanation Explain(const v1::Job& job, const std::vector<v1::Event>& events, int64_t now_unix_ns);

// Of the last failure: "rank 3 died ...\n  evidence\n"; empty if there is none.
std::string FailureText(const v1::Failure& failure);

}  // namespace trireme::cli
