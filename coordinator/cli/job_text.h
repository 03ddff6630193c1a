// Jobs, events and times as people read them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/text_table.h"
#include "runtime/recorder/flight_recorder.h"
#include "trireme/v1/event.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::cli {

int64_t NowUnixNs();
// "2026-11-21 17:10:03" of this machine's time zone; "-" for 0.
std::string LocalTime(int64_t unix_ns);
// How long ago: "3m20s"; "-" for 0.
std::string Ago(int64_t unix_ns, int64_t now_unix_ns);

// "running".
std::string StateWord(v1::JobState state);
// InvalidArgument with the nearest word.
absl::StatusOr<v1::JobState> ParseState(const std::string& word);
bool HasEnded(v1::JobState state);
// "job 12 (demo) runs on without you", or stays as it is: of a job that is left in this state.
std::string LeftText(const v1::Job& job, v1::JobState state);
// The exit code of watching a job to this state.
int ExitCodeOfState(v1::JobState state);
// `text` in the colour of the state, if `color`.
std::string Painted(const std::string& text, v1::JobState state, bool color);

// The word of the state, painted so, for a table.
Cell StateCell(v1::JobState state, bool color);

// "job 12 (demo)".
std::string NameOf(const v1::Job& job);
// "n1 x4, n2 x4"; empty: none.
std::string AllocationText(
    const google::protobuf::RepeatedPtrField<v1::NodeAllocation>& allocation);
// "step 120/600, loss 2.1031, 51.2k tokens/s in steps, 48k overall".
std::string ProgressText(const v1::Progress& progress);
// "120/600"; of one that does not run the step of its checkpoint; "-".
std::string StepsOf(const v1::Job& job);
// What a person would ask next: why it waits, where it runs, how it ended.
std::string NoteOf(const v1::Job& job);
// "number 2 in the queue: waits for 8 CPUs; ..."; empty: it waits for nothing.
std::string WaitText(const v1::Job& job);
recorder::Progress ToProgress(const v1::Progress& progress);
// "2 GPUs, 8 CPUs".
std::string RequestText(const v1::ResourceRequest& resources);

// Whether the reason of a change or of a job tells of the failure already. Its begin is enough, for
// the daemon cuts reasons short.
bool Tells(const std::string& reason, const std::string& headline);
// The reason with all of a headline that was cut at its end.
std::string Uncut(const std::string& reason, const std::string& headline);
// One line without the time: "running: every rank is at work".
std::string EventText(const v1::Event& event);

// Bytes of text that another machine gave, safe for a terminal: control characters become '?'; the
// lines of `text` stay.
std::string Shown(const std::string& text);

}  // namespace trireme::cli
