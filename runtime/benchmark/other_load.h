// What other programs take of the machine's processors while something is measured.
#pragma once

#include <optional>
#include <string>

namespace trireme::benchmark {

// Of all of the machine's processors since it began, in seconds.
struct ProcessorTimes {
  double used = 0;
  double idle = 0;
};
// Of the first line of /proc/stat (proc(5)); none where it is no such line. Guests are in `used`
// once.
std::optional<ProcessorTimes> ProcessorTimesOf(const std::string& stat);

// Between its construction and a call of Share(). Of one thread.
class OtherLoad {
 public:
  OtherLoad();
  // Of the processors' time, 0 to 1: what was used but by this process and what it has waited for.
  // Steal of a virtual machine is used by others. 0 where the machine does not say, and before a
  // tenth of a second, of which it knows too little.
  double Share() const;

 private:
  std::optional<ProcessorTimes> before_;
  double own_before_;
};

}  // namespace trireme::benchmark
