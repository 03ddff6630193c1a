// A lock is its process's alone, seen by others, and gone when the process is.
#include "runtime/base/file_lock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/temporary_folder.h"

namespace trireme::base {
namespace {

// A process that holds the lock and has a child of its own; both live until the end of the pipe.
class Holder {
 public:
  explicit Holder(const std::string& path) {
    int ready[2];
    REQUIRE((pipe(ready) == 0 && pipe(end_) == 0));
    pid_ = fork();
    if (pid_ == 0) {
      close(end_[1]);
      const auto lock = LockFile(path);
      fork();
      char byte = lock.ok() ? 'y' : 'n';
      if (write(ready[1], &byte, 1) == 1 && read(end_[0], &byte, 1) == 0) _exit(0);
      _exit(1);
    }
    // Of both.
    char told[2] = {};
    REQUIRE((read(ready[0], &told[0], 1) == 1 && read(ready[0], &told[1], 1) == 1));
    REQUIRE((told[0] == 'y' && told[1] == 'y'));
    close(ready[0]);
    close(ready[1]);
  }
  Holder(const Holder&) = delete;
  ~Holder() {
    close(end_[0]);
    close(end_[1]);
  }
  void Kill() const {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  int end_[2] = {};
  pid_t pid_ = -1;
};

TEST_CASE("a lock is seen while its process lives") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "lock";
  CHECK_FALSE(IsLocked(path));
  const Holder holder(path);
  for (int i = 0; i < 3; ++i) CHECK(IsLocked(path));  // a look takes nothing away
  const absl::Status second = LockFile(path).status();
  CHECK(absl::IsAlreadyExists(second));
  CHECK(second.message() == path + " is locked by another process");
  holder.Kill();
  CHECK_FALSE(IsLocked(path));  // its child does not hold it
  const auto lock = LockFile(path);
  REQUIRE(lock.ok());
  close(*lock);
}

TEST_CASE("where no file can be made is no lock") {
  const tests::TemporaryFolder folder;
  CHECK(absl::IsNotFound(LockFile(folder / "none/lock").status()));
  CHECK_FALSE(IsLocked(folder / "none/lock"));
}

}  // namespace
}  // namespace trireme::base
