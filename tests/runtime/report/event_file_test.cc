// Event files of TensorBoard: frames as TensorFlow writes them, and where they are cut.
#include "runtime/report/event_file.h"

#include <catch2/catch.hpp>
#include <string>

namespace trireme::report {
namespace {

std::string FileOf(uint64_t steps) {
  std::string file = EventFileHead(1.5);
  for (uint64_t step = 1; step <= steps; ++step) {
    const EventScalar scalars[] = {{"loss", 2.0 / static_cast<double>(step)}, {"rate", 1}};
    file += ScalarEvent(2.5, step, scalars);
  }
  return file;
}

}  // namespace

TEST_CASE("an event file begins as TensorFlow's do") {
  // length 26, its masked CRC, then wall_time 1.5, step 0 and "brain.Event:2"; the checksums are
  // those of an independent implementation (tests/worker/event_files.py).
  const std::string head = EventFileHead(1.5);
  REQUIRE(head.size() == 8 + 4 + 26 + 4);
  CHECK(head.substr(0, 8) == std::string("\x1a\0\0\0\0\0\0\0", 8));
  CHECK(head.substr(12, 9) == std::string("\x09\0\0\0\0\0\0\xf8\x3f", 9));
  CHECK(head.substr(21, 2) == std::string("\x10\0", 2));
  CHECK(head.substr(23, 15) ==
        "\x1a\x0d"
        "brain.Event:2");
}

TEST_CASE("event files are cut where later or torn records begin") {
  const std::string file = FileOf(300);
  CHECK(EventBytesThrough(file, 300) == file.size());
  for (const uint64_t step :
       {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{128}, uint64_t{299}}) {
    CHECK(EventBytesThrough(file, step) == FileOf(step).size());
  }
  const size_t before = FileOf(299).size();
  for (size_t size = before; size < file.size(); ++size) {
    CHECK(EventBytesThrough(file.substr(0, size), 300) == before);
  }
  for (size_t at = before; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CHECK(EventBytesThrough(damaged, 300) == before);
  }
  CHECK(EventBytesThrough("", 5) == 0);
  CHECK(EventBytesThrough(std::string(100, '\xff'), 5) == 0);
  CHECK(EventBytesThrough(EventFileHead(1) + SessionStartEvent(1, 8), 7) ==
        EventFileHead(1).size());
}

}  // namespace trireme::report
