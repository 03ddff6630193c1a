// Words of reasons: always one line, whatever peers and people put into them.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// Control characters become spaces, runs of spaces one; cut at 600 bytes, never inside a character.
std::string OneLine(const std::string& text);

// Who asked, or "somebody".
std::string NameOf(const std::string& by);

// How an attempt ended: the failure's headline, or its exit code.
std::string EndingOf(int exit_code, const v1::Failure& failure);

// Of a job that runs: its attempt is at work, and, if not empty, why its saves fail.
std::string AtWork(const std::string& attempt, const std::string& saves_fail);
bool TellsOfFailedSaves(const std::string& reason);

// "2 s", "500 ms".
std::string DurationText(int64_t duration_ns);

}  // namespace trireme::coordinator
