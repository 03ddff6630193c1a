// The nodes that could not start the newest attempts of a job (JobStatus.unable_nodes): the one
// that could not start the last of them is the last.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// Of more the first is forgotten: it may be tried again.
inline constexpr int kMostUnableNodes = 32;

// A node that could start none of so many attempts in a row is drained: one may be a job's doing,
// or an accident. After as many tries in vain a job waits for others.
inline constexpr uint32_t kUnableAfter = 3;

// Who has drained such a node, for people: Node.drained_by.
inline constexpr char kDaemonsName[] = "triremed";

// `node` could not start another attempt; empty: not known which.
void CountUnstarted(const std::string& node, v1::JobStatus& status);
// An attempt has begun, or somebody has looked at the job.
void ForgetUnstarted(v1::JobStatus& status);
// Somebody has mended the node: it is as one that was not tried, and the tries in vain on it bring
// the job no nearer to its end, for kUnableAfter count still at most. False: it is not one of them.
bool LetBack(const std::string& node, v1::JobStatus& status);
// The node has started something since: likewise, but the tries in vain stay as they are, for this
// job may be at fault.
bool LetTry(const std::string& node, v1::JobStatus& status);
// Of the tries in vain no more than `most` count.
void CountAtMost(uint32_t most, v1::JobStatus& status);
bool IsUnable(const std::string& node, const v1::JobStatus& status);

// The node of an allocation that has this rank; of no such rank its first one.
const std::string& NodeOfRank(const v1::Job& job, int rank);

// Attempts in a row that could not be started, but for the first on each further node: how long the
// job has been without a new one to try.
uint32_t TriesInVain(const v1::JobStatus& status);

// "n1, n2 and 3 more"; empty: none.
std::string UnableText(const v1::JobStatus& status);

}  // namespace trireme::coordinator
