// `trireme top` from outside: one picture into a file, a live one on a terminal.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <nlohmann/json.hpp>

#include "tests/coordinator/cli/control_room.h"

namespace trireme::cli {
namespace {

// Two nodes, one of them lost; a job that runs, one that waits.
void Fill(FakeControl& daemon) {
  v1::Node node;
  node.set_name("n1");
  node.set_state(v1::NODE_READY);
  node.set_cpus(16);
  node.set_cpus_used(4);
  node.set_memory_bytes(uint64_t{64} << 30);
  daemon.Put(node);
  node.set_name("n2");
  node.set_state(v1::NODE_LOST);
  node.set_last_heard_unix_ns(1);
  daemon.Put(node);
  v1::Job job = SomeJob(1, "demo", v1::JOB_RUNNING);
  job.mutable_spec()->mutable_training()->set_global_batch_size(8);
  job.mutable_spec()->mutable_data()->set_sequence_length(16);
  job.mutable_progress()->set_steps_done(100);
  job.mutable_progress()->set_steps_total(1100);
  job.mutable_progress()->set_loss(2.5);
  job.mutable_progress()->set_tokens_per_second(1280);
  daemon.Put(job);
  v1::Job waiting = SomeJob(2, "later", v1::JOB_PENDING);
  waiting.set_queue_position(1);
  waiting.set_waits_for("waits for 16 CPUs; 12 of 16 are free on n1");
  daemon.Put(waiting);
}

TEST_CASE("top: where there is no terminal one picture of nodes and jobs") {
  Room room;
  Fill(room.daemon);
  const Said said = room.Run("top");
  CHECK(said.code == 0);
  CHECK_FALSE(Holds(said.out, "\x1b"));
  // 1000 steps of 128 tokens at 1280 a second.
  for (const char* part : {"4 / 16", "64.0 GiB", "lost", "last heard of", "100/1100", "2.5000",
                           "1.28k", "1m40s", "#1: waits for 16 CPUs; 12 of 16 are free on n1"}) {
    CAPTURE(part);
    CHECK(Holds(said.out, part));
  }
  const auto json = nlohmann::json::parse(room.Run("top --json").out, nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json["cluster"]["nodes"].size() == 2);
  CHECK(json["list"]["jobs"].size() == 2);
  room.daemon.Stop();
  CHECK(room.Run("top").code == 69);
}

// `trireme top` on a terminal of its own.
class Terminal {
 public:
  Terminal(const Room& room, winsize size) {
    const std::string address = room.daemon.address(), program = Program();
    pid_ = forkpty(&descriptor_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      setenv("TERM", "xterm", 1);
      execl(program.c_str(), "trireme", "top", "--delay", "0.1", "--coordinator", address.c_str(),
            nullptr);
      _exit(127);
    }
  }
  ~Terminal() { close(descriptor_); }
  Terminal(const Terminal&) = delete;

  // What has been drawn since the last call, until `part` is in it.
  std::string Await(const std::string& part) {
    std::string text;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!Holds(text, part) && std::chrono::steady_clock::now() < until && Read(text)) {
    }
    INFO(text);
    REQUIRE(Holds(text, part));
    return text;
  }
  void Type(const std::string& keys) {
    CHECK(write(descriptor_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }
  void Resize(winsize size) { ioctl(descriptor_, TIOCSWINSZ, &size); }
  bool Echoes() const {
    termios mode{};
    tcgetattr(descriptor_, &mode);
    return (mode.c_lflag & (ECHO | ICANON)) == (ECHO | ICANON);
  }
  // All that is left to read, then the exit code.
  int End() {
    std::string rest;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    int status = 0;
    pid_t ended = 0;
    while (ended == 0 && std::chrono::steady_clock::now() < until) {
      Read(rest);
      ended = waitpid(pid_, &status, WNOHANG);
    }
    if (ended == 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool Read(std::string& text) {
    pollfd output{descriptor_, POLLIN, 0};
    if (poll(&output, 1, 50) != 1) return true;
    char bytes[4096];
    const ssize_t count = read(descriptor_, bytes, sizeof bytes);
    if (count <= 0) return false;
    text.append(bytes, static_cast<size_t>(count));
    return true;
  }

  int descriptor_ = -1;
  pid_t pid_ = -1;
};

TEST_CASE("top: live on a terminal and within its size and the terminal as before at the end") {
  Room room;
  Fill(room.daemon);
  Terminal terminal(room, {30, 160, 0, 0});
  terminal.Await("12 of 16 are free");
  CHECK_FALSE(terminal.Echoes());
  v1::Job job = room.daemon.job(1);
  job.mutable_progress()->set_steps_done(777);
  room.daemon.Put(job);
  terminal.Await("777/1100");
  // A job that ends is shown with its end.
  room.daemon.Enter(1, v1::JOB_COMPLETED, "all steps are done");
  terminal.Await("all steps are done");
  terminal.Resize({6, 40, 0, 0});
  const std::string narrow = terminal.Await("... and");
  const std::string frame = narrow.substr(narrow.rfind("\x1b[H"));
  CHECK(Count(frame, "\n") <= 5);
  room.daemon.Stop();
  terminal.Await("has been away");
  room.daemon.Start();
  terminal.Type("xq");
  CHECK(terminal.End() == 0);
  CHECK(terminal.Echoes());
}

TEST_CASE("top: Ctrl-C ends it in order") {
  Room room;
  Fill(room.daemon);
  Terminal terminal(room, {30, 160, 0, 0});
  terminal.Await("12 of 16 are free");
  terminal.Type("\x03");
  CHECK(terminal.End() == 0);
  CHECK(terminal.Echoes());
}

}  // namespace
}  // namespace trireme::cli
