// The program `trireme` from outside, in a folder of its own with a small job; for `run` a copy of
// it lies beside a script that plays the worker.
#pragma once

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/base/check.h"
#include "tests/coordinator/cli/control_room.h"

namespace trireme::cli {

inline constexpr const char* kJob = R"(name: tiny
model:
  config: {model_type: gpt2, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2,
           max_position_embeddings: 16}
data: {text_files: [text.txt], sequence_length: 16}
training: {steps: 3, global_batch_size: 4, micro_batch_size: 2}
)";

// Plays a rank; what it does at the end is appended.
inline constexpr const char* kWorker = R"(#!/usr/bin/env -S --default-signal=USR1 /bin/sh
while [ $# -gt 0 ]; do
  case "$1" in --run-dir) run=$2; shift;; --resume) echo "resume $2" >"$run/resumed"; shift;; esac
  shift
done
rank=${OMPI_COMM_WORLD_RANK:-0}
)";

struct Result {
  int code = -1;
  std::string out;  // stdout and stderr
};

// A limit for what hangs, not a measure: 60 s.
inline void AwaitFile(const std::string& path, const std::string& part = "") {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(path) || !Holds(Slurp(path), part)) {
    INFO("waited in vain for \"" << part << "\" in " << path << ", which holds:\n" << Slurp(path));
    REQUIRE(std::chrono::steady_clock::now() < limit);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

class Bench {
 public:
  Bench() {
    char path[] = "/tmp/trireme_cli_XXXXXX";
    TRIREME_CHECK(mkdtemp(path) != nullptr);
    folder_ = path;
    std::filesystem::copy_file(Program(), folder_ + "/trireme");
    std::ofstream(folder_ + "/job.yaml") << kJob;
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the oars dip and rise\n";
    std::ofstream(folder_ + "/text.txt") << text;
  }
  Bench(const Bench&) = delete;
  ~Bench() { std::filesystem::remove_all(folder_); }
  void Worker(const std::string& end) {
    std::ofstream(folder_ + "/trireme-worker") << kWorker << end;
    chmod((folder_ + "/trireme-worker").c_str(), 0755);
  }
  // Starts it in the folder; `arguments` are words for the shell.
  pid_t Start(const std::string& arguments) const {
    const std::string command = "cd " + folder_ + " && exec ./trireme " + arguments + " >out 2>&1";
    const pid_t pid = fork();
    if (pid == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    return pid;
  }
  Result End(pid_t pid) const {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            Slurp(folder_ + "/out")};
  }
  Result Run(const std::string& arguments) const { return End(Start(arguments)); }
  const std::string& folder() const { return folder_; }
  std::string RunFolder() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/runs"))
      return entry.path();
    return "";
  }

 private:
  std::string folder_;
};

}  // namespace trireme::cli
