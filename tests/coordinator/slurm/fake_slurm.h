// A folder of programs that stand for Slurm's, first in PATH.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace trireme::slurm {

class FakeSlurm {
 public:
  FakeSlurm() {
    std::string path = "/tmp/trireme-slurm-XXXXXX";
    folder_ = mkdtemp(path.data()) == nullptr ? "/nonexistent" : path;
    const char* before = std::getenv("PATH");
    path_before_ = before == nullptr ? "/usr/bin:/bin" : before;
    setenv("PATH", (folder_ + ":" + path_before_).c_str(), 1);
  }
  ~FakeSlurm() {
    setenv("PATH", path_before_.c_str(), 1);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  FakeSlurm(const FakeSlurm&) = delete;
  FakeSlurm& operator=(const FakeSlurm&) = delete;

  const std::string& folder() const { return folder_; }
  // A shell script in the place of `name`; its calls are a line each in the file `name`.calls.
  void Program(const std::string& name, const std::string& script) const {
    const std::string path = folder_ + "/" + name;
    Write(name + ".new", "#!/bin/sh\nPATH=" + folder_ + ":/usr/bin:/bin\necho \"$*\" >>" + path +
                             ".calls\n" + script + "\n");
    chmod((path + ".new").c_str(), 0755);
    std::filesystem::rename(path + ".new", path);
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(folder_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string folder_;
  std::string path_before_;
};

}  // namespace trireme::slurm
