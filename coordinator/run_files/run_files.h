// What a job leaves for people in its run folder: which names these are, and how they are opened
// without following anything that leads elsewhere. The folder is written by the job's ranks, so
// nothing in it is trusted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

// "metrics.jsonl", "tensorboard/events.out.tfevents.1", "schedule.svg" and the like; nothing else,
// so no other folder, no name that begins with a dot.
bool IsForPeople(std::string_view path);

// By path; none if there is no such folder yet. Links, FIFOs and what else is no plain file is left
// out, and so is what lies beyond the first ten thousand names of a folder. Blocks on the disk.
std::vector<v1::FileInfo> ListRunFiles(const std::string& run_folder);

// A descriptor, owned by the caller, of a plain file. NotFound: there is none of that name, or it
// is none that is for people.
absl::StatusOr<int> OpenRunFile(const std::string& run_folder, std::string_view path);

}  // namespace trireme::coordinator
