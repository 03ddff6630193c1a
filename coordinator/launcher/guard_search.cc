// The command of a process whose memory a disk holds cannot be read, so it is asked of guards
// alone, whose names are the kernel's own.
#include "coordinator/launcher/guard_search.h"

#include <dirent.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace trireme::launcher {
namespace {

constexpr size_t kMostTitleBytes = 1 << 16;  // PATH_MAX is less

std::string ReadOf(int pid, const char* file) {
  return ProcessFile(pid, file, kMostTitleBytes).value_or("");
}

// The folder that a guard guards, as the kernel knows it, without a look at its disk; under another
// name where a link leads there. Empty: not known.
std::string WorkingFolderOf(int pid) {
  std::string target(PATH_MAX, '\0');
  const std::string link = "/proc/" + std::to_string(pid) + "/cwd";
  const ssize_t got = readlink(link.c_str(), target.data(), target.size());
  target.resize(got < 0 ? 0 : static_cast<size_t>(got));
  constexpr std::string_view kDeleted = " (deleted)";
  if (target.ends_with(kDeleted)) target.resize(target.size() - kDeleted.size());
  return target;
}

// Whether a guard at work in `in` may be one of `folder` all the same, which a link may lead to
// under other names, but for the last ones. In a folder of another form one is not there yet, or
// could not go there.
bool MayBe(const std::filesystem::path& in, const std::filesystem::path& folder) {
  return in.parent_path().filename() != folder.parent_path().filename() ||
         in.filename() == folder.filename();
}

bool IsGuard(int pid) { return ReadOf(pid, "comm") == std::string(kGuardName) + "\n"; }

}  // namespace

std::string GuardTitle(const std::string& folder) { return std::string(kGuardName) + " " + folder; }

std::vector<FoundGuard> GuardsOf(const std::string& folder) {
  std::vector<FoundGuard> guards;
  DIR* processes = opendir("/proc");
  // Nobody can say that there is none.
  if (processes == nullptr) return {{{}, false}};
  const std::string title = GuardTitle(folder);
  while (const dirent* entry = readdir(processes)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0 || !IsGuard(pid)) continue;
    const ProcessIdentity process = IdentityOf(pid);
    // All the room that the title has, its end in zeros (process_title.h).
    const std::string room = ReadOf(pid, "cmdline");
    const std::string shown = room.substr(0, room.find('\0'));
    const bool whole = shown.size() + 1 < room.size();
    const std::string in = whole ? folder : WorkingFolderOf(pid);
    const bool ours =
        whole ? shown == title : title.compare(0, shown.size(), shown) == 0 && MayBe(in, folder);
    if (ours && IsAlive(process)) guards.push_back({process, in == folder});
  }
  closedir(processes);
  return guards;
}

}  // namespace trireme::launcher
