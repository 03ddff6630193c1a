#include "tests/coordinator/daemon/ten_jobs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/time/clock.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

namespace fs = std::filesystem;

bool Within(const std::function<bool()>& holds) {
  const absl::Time until = absl::Now() + absl::FromChrono(kTenJobsDeadline);
  while (!holds()) {
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

void PutText(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// What follows `begin` there, to the end of the word.
std::string WordAfter(const std::string& text, const std::string& begin) {
  const size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  const size_t from = at + begin.size();
  return text.substr(from, text.find_first_of(" ,;\r\n", from) - from);
}

}  // namespace

PlayedAgent::PlayedAgent(const std::string& address)
    : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
      stub_(v1::AgentLink::NewStub(channel_)),
      stream_(stub_->Connect(&context_)) {
  v1::FromAgent message;
  v1::AgentHello& hello = *message.mutable_hello();
  hello.set_node("n1");
  hello.set_version("test");
  hello.set_cpus(10000);
  hello.set_memory_bytes(uint64_t{1} << 46);
  hello.set_boot_id("boot");
  hello.set_state_folder("/tmp/nowhere");
  hello.set_agent_id("played");
  TRIREME_CHECK(stream_->Write(message));
  reader_ = std::thread([this] { Read(); });
}

PlayedAgent::~PlayedAgent() {
  context_.TryCancel();
  reader_.join();
  (void)stream_->Finish();
}

void PlayedAgent::Read() {
  v1::ToAgent message;
  while (stream_->Read(&message)) {
    const absl::MutexLock lock(&mutex_);
    if (message.has_desired()) desired_ = message.desired();
    if (message.has_taken()) taken_ = message.taken().number();
  }
  const absl::MutexLock lock(&mutex_);
  ended_ = true;
}

bool PlayedAgent::Report(const std::set<uint64_t>& stopped) {
  v1::FromAgent message;
  v1::NodeReport& report = *message.mutable_report();
  report.set_number(++number_);
  {
    const absl::MutexLock lock(&mutex_);
    report.set_revision(desired_.revision());
    for (const v1::DesiredAttempt& desired : desired_.attempts()) {
      v1::AttemptReport& attempt = *report.add_attempts();
      attempt.set_job_id(desired.job_id());
      attempt.set_attempt(desired.attempt());
      *attempt.mutable_store() = desired.launch().store();
      attempt.set_phase(v1::ATTEMPT_RUNNING);
      if (stopped.contains(desired.job_id())) {
        attempt.set_phase(v1::ATTEMPT_ENDED);
        attempt.set_launcher(true);
        attempt.set_exit_code(75);
      }
    }
  }
  if (!stream_->Write(message)) return false;
  const absl::MutexLock lock(&mutex_);
  const auto taken = [this] {
    mutex_.AssertReaderHeld();
    return taken_ >= number_ || ended_;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&taken), absl::FromChrono(kTenJobsDeadline)) &&
         !ended_;
}

bool PlayedAgent::AwaitAttempt(uint64_t job_id, uint32_t attempt) {
  const auto wanted = [&] {
    mutex_.AssertReaderHeld();
    for (const v1::DesiredAttempt& each : desired_.attempts()) {
      if (each.job_id() == job_id && each.attempt() >= attempt) return true;
    }
    return false;
  };
  const absl::Time until = absl::Now() + absl::FromChrono(kTenJobsDeadline);
  while (absl::Now() < until) {
    {
      const absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&wanted), absl::Seconds(1))) return true;
    }
    if (!Report()) return false;
  }
  return false;
}

TenJobs::TenJobs(const std::string& program) : program_(program) {
  TRIREME_CHECK(mkdtemp(folder_.data()) != nullptr);
  for (uint64_t id = 1; id <= kJobs; ++id) {
    PutText(data_folder(id) + "/text.txt", "a text that is long enough for a tiny model, and more");
  }
  Start();
  agent_ = std::make_unique<PlayedAgent>("unix:" + folder_ + "/s.sock");
  const auto client = Connect();
  for (uint64_t id = 1; id <= kJobs; ++id) {
    const auto submitted = Submit(*client, id);
    TRIREME_CHECK(submitted.ok());
    TRIREME_CHECK(*submitted == id);
    TRIREME_CHECK(agent_->AwaitAttempt(id, 1));
    PutText(run_folder(id) + "/metrics.jsonl", "a step\n");
    PutText(run_folder(id) + "/attempts/1/logs/mpirun.log", "a line\n");
  }
  TRIREME_CHECK(Within([&] {
    TRIREME_CHECK(agent_->Report());
    v1::ListRequest running;
    running.add_states(v1::JOB_RUNNING);
    const auto listed = client->Call(running);
    return listed.ok() && listed->jobs_size() == static_cast<int>(kJobs);
  }));
  LogIn();
}

TenJobs::~TenJobs() {
  agent_.reset();
  kill(pid_, SIGTERM);
  Answer();
  waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void TenJobs::Start() {
  const std::string socket = folder_ + "/s.sock", state = folder_ + "/state";
  const std::string log = folder_ + "/log";
  const std::vector<const char*> arguments{
      program_.c_str(),     "--no-agent", "--socket",    socket.c_str(),         "--state-dir",
      state.c_str(),        "--http",     "127.0.0.1:0", "--submits-per-second", "0",
      "--calls-per-second", "0",          nullptr};
  PutText(log, "");
  pid_ = fork();
  TRIREME_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(file, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(program_.c_str(), const_cast<char**>(arguments.data()));
    _exit(127);
  }
  TRIREME_CHECK(Within([&] { return TextOf(log).find("ready: ") != std::string::npos; }));
  http_port_ = std::atoi(WordAfter(TextOf(log), "http://127.0.0.1:").c_str());
}

void TenJobs::Hang() {
  hung_.push_back(std::make_unique<HungMount>(data_folder(kJobs)));
  hung_.push_back(std::make_unique<HungMount>(run_folder(kJobs)));
}

void TenJobs::RestartWithHungJobsFolder() {
  agent_.reset();
  kill(pid_, SIGTERM);
  TRIREME_CHECK(waitpid(pid_, nullptr, 0) == pid_);
  hung_.push_back(std::make_unique<HungMount>(jobs_folder()));
  Start();
  agent_ = std::make_unique<PlayedAgent>("unix:" + folder_ + "/s.sock");
}

bool TenJobs::hangs() const {
  return !hung_.empty() &&
         std::all_of(hung_.begin(), hung_.end(), [](const auto& mount) { return mount->hangs(); });
}

std::unique_ptr<client::Client> TenJobs::Connect() const {
  client::ClientOptions options;
  options.address = "unix:" + folder_ + "/s.sock";
  options.timeout = kTenJobsDeadline;
  options.reconnect_for = std::chrono::milliseconds(1);  // what a stream fails for is told
  auto client = client::Client::Open(options);
  TRIREME_CHECK(client.ok());
  // Streams wait for no connection then; a call does.
  TRIREME_CHECK((*client)->Call(v1::ListRequest()).ok());
  return *std::move(client);
}

std::string TenJobs::run_folder(uint64_t job_id) const {
  return fmt::format("{}/{}", jobs_folder(), job_id);
}

std::string TenJobs::data_folder(uint64_t job_id) const {
  return fmt::format("{}/data/{}", folder_, job_id);
}

v1::JobSpec TenJobs::JobOn(uint64_t job_id) const {
  v1::JobSpec job;
  job.set_name("tiny");
  v1::ModelConfig& model = *job.mutable_model()->mutable_config();
  model.set_model_type("gpt2");
  model.set_hidden_size(8);
  model.set_num_hidden_layers(1);
  model.set_num_attention_heads(2);
  model.set_max_position_embeddings(8);
  job.mutable_data()->add_text_files(data_folder(job_id) + "/text.txt");
  job.mutable_data()->set_tokenizer("char");
  job.mutable_data()->set_sequence_length(4);
  job.mutable_training()->set_steps(1);
  job.mutable_training()->set_global_batch_size(2);
  job.mutable_training()->set_micro_batch_size(1);
  return job;
}

absl::StatusOr<uint64_t> TenJobs::Submit(client::Client& client, uint64_t job_id) {
  v1::SubmitRequest request;
  request.set_request_id(fmt::format("request-{}", ++submitted_));
  *request.mutable_job() = JobOn(job_id);
  ASSIGN_OR_RETURN(const v1::SubmitResponse response, client.Call(request));
  return response.job().id();
}

absl::Status TenJobs::Preview(client::Client& client, uint64_t job_id) const {
  v1::PreviewPlanRequest request;
  *request.mutable_job() = JobOn(job_id);
  return client.Call(request).status();
}

void TenJobs::LogIn() {
  const auto link = Connect()->Call(v1::OpenDashboardRequest());
  TRIREME_CHECK(link.ok());
  const size_t path = link->url().find("/login");
  TRIREME_CHECK(path != std::string::npos);
  cookie_ = WordAfter(Http(link->url().substr(path)), "Set-Cookie: ");
  TRIREME_CHECK(!cookie_.empty());
}

int TenJobs::Page(const std::string& path) const {
  const std::string answer = Http(path);
  return answer.size() < 12 ? 0 : std::atoi(answer.c_str() + 9);
}

std::string TenJobs::Http(const std::string& path) const {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval most{kTenJobsDeadline.count(), 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(http_port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string ask =
        fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\nConnection: close\r\n\r\n",
                    path, cookie_);
    (void)!send(fd, ask.data(), ask.size(), MSG_NOSIGNAL);
    char buffer[4096];
    for (ssize_t got = 0; (got = recv(fd, buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(got));
    }
  }
  close(fd);
  return answer;
}

}  // namespace trireme::coordinator
