// The arguments lie where the kernel has put them; it says where in /proc/self/stat.
#include "coordinator/launcher/process_title.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace trireme::launcher {

void SetProcessTitle(const char* title) {
  const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char text[2048];
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return;
  text[got] = '\0';
  // proc(5): the second field may hold anything but its last ')'; arg_start and arg_end are fields
  // 48 and 49.
  const char* at = std::strrchr(text, ')');
  for (int field = 2; field < 48 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  unsigned long long start = 0, end = 0;
  if (at == nullptr || std::sscanf(at, "%llu %llu", &start, &end) != 2) return;
  if (start == 0 || end <= start) return;
  // The arguments' own memory, which belongs to the process. The last byte stays zero: else the
  // kernel goes on into the environment.
  char* const arguments = reinterpret_cast<char*>(start);
  const size_t room = end - start;
  std::fill_n(arguments, room, '\0');
  std::copy_n(title, std::min(std::strlen(title), room - 1), arguments);
}

}  // namespace trireme::launcher
