// For tests of the subcommands that speak to the daemon: one of a few lines, and `trireme` beside
// it.
#pragma once

#include <google/protobuf/util/json_util.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/coordinator/client/fake_control.h"

namespace trireme::cli {

using client::FakeControl;
using client::FakeFaults;

inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

inline bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The `trireme` of this build.
std::string Program();

struct Said {
  int code = -1;
  std::string out, err;
};

// A daemon, and `trireme` in its folder.
class Room {
 public:
  FakeControl daemon;

  // `arguments` are words for the shell; the first is the subcommand.
  pid_t Start(const std::string& arguments) {
    const std::string folder = daemon.folder();
    const std::string command = "cd " + folder + " && exec " + Program() + " " + arguments +
                                " --coordinator " + daemon.address() + " >out 2>err </dev/null";
    const pid_t pid = fork();
    if (pid == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    return pid;
  }
  Said End(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), Out(), Err()};
  }
  Said Run(const std::string& arguments) { return End(Start(arguments)); }
  std::string Out() const { return Slurp(daemon.folder() + "/out"); }
  std::string Err() const { return Slurp(daemon.folder() + "/err"); }
  // Until `part` has been printed.
  void Await(const std::string& part) const { AwaitIn("out", part); }
  void AwaitError(const std::string& part) const { AwaitIn("err", part); }

 private:
  void AwaitIn(const std::string& file, const std::string& part) const {
    const std::string path = daemon.folder() + "/" + file;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!Holds(Slurp(path), part) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CAPTURE(Out(), Err());
    REQUIRE(Holds(Slurp(path), part));
  }
};

inline v1::Job SomeJob(uint64_t id, const std::string& name, v1::JobState state) {
  v1::Job job;
  job.set_id(id);
  job.set_name(name);
  job.set_owner("ada");
  job.set_run_folder("/runs/" + name);
  job.mutable_resources()->set_ranks(4);
  job.mutable_status()->set_state(state);
  job.mutable_status()->set_attempt(1);
  job.mutable_status()->set_changed_unix_ns(1'700'000'000'000'000'000);
  return job;
}

inline void WriteJob(const std::string& folder) {
  std::ofstream(folder + "/job.yaml") << R"(name: tiny
model:
  config: {model_type: gpt2, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2,
           max_position_embeddings: 16}
data: {text_files: [text.txt], sequence_length: 16}
training: {steps: 3, global_batch_size: 4, micro_batch_size: 2}
)";
  std::ofstream text(folder + "/text.txt");
  for (int i = 0; i < 40; ++i) text << "the oars dip and rise\n";
}

template <typename Message>
Message FromJson(const std::string& line) {
  Message message;
  INFO(line);
  REQUIRE(google::protobuf::util::JsonStringToMessage(line, &message).ok());
  return message;
}

inline void FailWith(Room& room, const absl::Status& status) {
  FakeFaults faults;
  faults.before = [status](const std::string&) { return status; };
  faults.details.emplace_back().set_message(std::string(status.message()));
  room.daemon.set_faults(faults);
}

}  // namespace trireme::cli
