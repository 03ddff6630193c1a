// What a program does to a folder, call by call, for tests that take the power away in between.
//
// The calls of libc that change files and folders are defined anew in this test program, and so
// are seen whoever makes them: rooms, the standard library, SQLite. An interface in our own code
// would show only what goes through it, and not the write that somebody makes beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::power_loss {

// Of one call that changed something below the root; paths are relative to it ("" is the root).
struct Call {
  enum class Kind : uint8_t {
    kMakeFile,    // path: made empty; only if it was not there
    kMakeFolder,  // path
    kWrite,       // file: bytes at offset
    kTruncate,    // file: to offset bytes
    kSyncFile,    // file
    kSyncFolder,  // file is the folder
    kRename,      // path to other; what was there is gone
    kExchange,    // path with other
    kLink,        // path gets the second name other
    kRemove,      // path, a file or an empty folder
    kMark,        // path is the note of the test
  };
  Kind kind = Kind::kMark;
  int file = -1;  // the number of the file or folder that is changed or made; the root is 0
  std::string path;
  std::string other;
  uint64_t offset = 0;
  std::string bytes;
};

// Runs `work` and returns the calls by which it changes what lies below `root`, an empty folder.
// One at a time in the process; `work` may have threads. Links are not followed.
std::vector<Call> Record(const std::string& root, const std::function<void()>& work);

// This process stands still (SIGSTOP) right before the so many-th call from now on that opens,
// looks at, flushes or changes a name of anything; 0: it does not.
void StandStillBefore(int calls);

// From now on nothing whose path ends like this is renamed (by rename) or removed (by unlinkat, as
// the standard library does): EACCES, whoever asks. "": no such name. Not beside other threads.
void RefuseNames(const std::string& ending);

// From now on the disk is full: no folder is made (ENOSPC) until so many more names were removed;
// 0: it is not. Not beside other threads.
void FillDisk(int names);

// Inside `work`: a note in the log, such as that something was promised.
void Mark(const std::string& note);

}  // namespace trireme::power_loss
