// What the daemon's API costs: a daemon of its own, 1,000 jobs queued and 200 watchers of all of
// them; latency of Submit, Get and List as a client sees it, and the daemon's memory.
// Usage: bench_control TRIREMED TEXT_FILE
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/client/client.h"
#include "runtime/base/check.h"

namespace trireme::client {
namespace {

constexpr int kJobs = 1000;
constexpr int kWatchers = 200;
constexpr int kGets = 2000;
constexpr int kLists = 200;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Ended and its folder removed with the object.
class OwnDaemon {
 public:
  explicit OwnDaemon(const std::string& program) {
    TRIREME_CHECK(mkdtemp(folder_.data()) != nullptr);
    const std::string socket = folder_ + "/s.sock", state = folder_ + "/state";
    const std::vector<const char*> arguments{
        program.c_str(), "--no-agent",           "--socket", socket.c_str(),       "--state-dir",
        state.c_str(),   "--submits-per-second", "0",        "--calls-per-second", "0",
        nullptr};
    pid_ = fork();
    TRIREME_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDERR_FILENO);
      execv(program.c_str(), const_cast<char**>(arguments.data()));
      _exit(127);
    }
  }
  ~OwnDaemon() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  OwnDaemon(const OwnDaemon&) = delete;
  OwnDaemon& operator=(const OwnDaemon&) = delete;

  std::unique_ptr<Client> Connect() const {
    auto client = Client::Open({.address = "unix:" + folder_ + "/s.sock"});
    TRIREME_CHECK(client.ok());
    return *std::move(client);
  }
  double ResidentMiB() const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    std::string word;
    double kib = 0;
    while (status >> word) {
      if (word == "VmRSS:") status >> kib;
    }
    return kib / 1024;
  }

 private:
  std::string folder_ = "/tmp/trireme-bench-XXXXXX";
  pid_t pid_ = -1;
};

v1::JobSpec BenchJob(const std::string& text_file) {
  v1::JobSpec job;
  job.set_name("bench");
  v1::ModelConfig& model = *job.mutable_model()->mutable_config();
  model.set_model_type("gpt2");
  model.set_hidden_size(32);
  model.set_num_hidden_layers(2);
  model.set_num_attention_heads(2);
  job.mutable_data()->add_text_files(text_file);
  job.mutable_data()->set_tokenizer("char");
  job.mutable_data()->set_sequence_length(16);
  job.mutable_training()->set_steps(30);
  job.mutable_training()->set_global_batch_size(4);
  job.mutable_training()->set_micro_batch_size(2);
  return job;
}

void Measure(const char* what, int count, const std::function<bool(int)>& call) {
  std::vector<double> ms;
  const double begin = Seconds();
  for (int i = 0; i < count; ++i) {
    const double from = Seconds();
    TRIREME_CHECK(call(i));
    ms.push_back((Seconds() - from) * 1e3);
  }
  const double rate = count / (Seconds() - begin);
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double part) { return ms[static_cast<size_t>(part * (count - 1))]; };
  fmt::print("{:<24} {:>6} calls  p50 {:8.3f} ms  p99 {:8.3f} ms  max {:8.3f} ms  {:8.0f}/s\n",
             what, count, at(0.5), at(0.99), ms.back(), rate);
}

using Watch = Stream<v1::WatchResponse>;

// Takes what has come; the number of events.
int Take(std::vector<std::unique_ptr<Watch>>& watchers) {
  int events = 0;
  for (const auto& watcher : watchers) {
    v1::WatchResponse response;
    while (true) {
      const auto pull = watcher->Next(response, std::chrono::milliseconds(0));
      TRIREME_CHECK(pull.ok());
      if (*pull != Pull::kMessage) break;
      events += response.has_event() ? 1 : 0;
    }
  }
  return events;
}

int Main(const std::string& program, const std::string& text_file) {
  const OwnDaemon daemon(program);
  const auto client = daemon.Connect();
  const double until = Seconds() + 60;
  while (!client->Call(v1::GetClusterRequest()).ok()) {
    TRIREME_CHECK(Seconds() < until);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  fmt::print("daemon alone             {:8.1f} MiB\n", daemon.ResidentMiB());
  std::vector<std::unique_ptr<Watch>> watchers;
  for (int i = 0; i < kWatchers; ++i) watchers.push_back(client->Watch(v1::WatchRequest()));
  int events = Take(watchers);
  const auto submit = [&](const std::string& request_id) {
    v1::SubmitRequest request;
    request.set_request_id(request_id);
    *request.mutable_job() = BenchJob(text_file);
    return client->Call(request).ok();
  };
  Measure("Submit, nobody reads", kJobs / 2, [&](int i) { return submit(fmt::format("a{}", i)); });
  std::atomic<bool> over = false;
  std::thread reader([&] {
    while (!over) {
      events += Take(watchers);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  Measure("Submit, 200 watch", kJobs / 2, [&](int i) { return submit(fmt::format("b{}", i)); });
  Measure("Get", kGets, [&](int i) {
    v1::GetRequest request;
    request.set_job_id(static_cast<uint64_t>(1 + i % kJobs));
    return client->Call(request).ok();
  });
  Measure("List of 100", kLists, [&](int) { return client->Call(v1::ListRequest()).ok(); });
  v1::ListRequest all;
  all.set_page_size(kJobs);
  Measure("List of 1,000", kLists, [&](int) {
    const auto listed = client->Call(all);
    return listed.ok() && listed->jobs_size() == kJobs;
  });
  over = true;
  reader.join();
  const double begin = Seconds();
  while (events < kWatchers * kJobs && Seconds() - begin < 120) events += Take(watchers);
  TRIREME_CHECK(events == kWatchers * kJobs);
  fmt::print("with {} jobs and {} watchers, each told of all: {:.1f} MiB\n", kJobs, kWatchers,
             daemon.ResidentMiB());
  return 0;
}

}  // namespace
}  // namespace trireme::client

int main(int argc, char** argv) {
  if (argc == 3) return trireme::client::Main(argv[1], argv[2]);
  fmt::print(stderr, "usage: bench_control TRIREMED TEXT_FILE\n");
  return 2;
}
