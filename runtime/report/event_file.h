// Event files of TensorBoard, as bytes: records framed as TFRecord (length, masked CRC32C of it,
// data, masked CRC32C of that), each a protobuf message `Event` of
// tensorflow/core/util/event.proto. Only what scalars need is written, by hand: Event{1: wall_time
// double, 2: step int64, 3: file_version string, 5: summary, 7: session_log}, Summary{1: value},
// Value{1: tag string, 2: simple_value float}, SessionLog{1: status; START is 1}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace trireme::report {

// The record that a file begins with.
std::string EventFileHead(double wall_time_s);

// Says that what earlier files have of `step` and later is void: the run has gone back to before.
std::string SessionStartEvent(double wall_time_s, uint64_t step);

using EventScalar = std::pair<std::string_view, double>;  // tag, value
std::string ScalarEvent(double wall_time_s, uint64_t step, std::span<const EventScalar> scalars);

// How many bytes of an event file of ours are whole, intact records of steps up to `last_step`:
// what follows them is of later steps, or torn.
size_t EventBytesThrough(std::string_view file, uint64_t last_step);

}  // namespace trireme::report
