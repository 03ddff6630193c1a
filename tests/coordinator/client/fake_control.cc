#include "tests/coordinator/client/fake_control.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "coordinator/client/error_details.h"
#include "runtime/base/check.h"
#include "trireme/v1/control.grpc.pb.h"

namespace trireme::client {
namespace {

constexpr std::chrono::milliseconds kLook{5};

bool Ended(v1::JobState state) { return state >= v1::JOB_COMPLETED; }

}  // namespace

class FakeControl::Service final : public v1::Control::Service {
 public:
  using Context = grpc::ServerContext;

  grpc::Status Submit(Context* context, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override {
    if (auto refused = Begin(*context, "Submit"); !refused.ok()) return refused;
    const std::lock_guard lock(mutex);
    submit = *request;
    auto [at, fresh] = submissions.try_emplace(request->request_id(), jobs.size() + 1);
    if (fresh) {
      v1::Job& job = jobs[at->second];
      job.set_id(at->second);
      job.set_name(request->job().name());
      *job.mutable_spec() = request->job();
      job.mutable_status()->set_state(v1::JOB_PENDING);
      job.set_queue_position(1);
    }
    *response->mutable_job() = jobs[at->second];
    response->set_repeated(!fresh);
    return grpc::Status::OK;
  }
  grpc::Status Get(Context* context, const v1::GetRequest* request, v1::Job* response) override {
    return OnJob(*context, "Get", request->job_id(), response, [](v1::Job&) {});
  }
  grpc::Status List(Context* context, const v1::ListRequest* request,
                    v1::ListResponse* response) override {
    if (auto refused = Begin(*context, "List"); !refused.ok()) return refused;
    const std::lock_guard lock(mutex);
    // Pages of two, whatever is asked for.
    uint64_t below =
        request->page_token().empty() ? UINT64_MAX : std::stoull(request->page_token());
    for (auto at = jobs.rbegin(); at != jobs.rend(); ++at) {
      v1::Job job = at->second;
      const auto& states = request->states();
      if (job.id() >= below) continue;
      if (!request->name().empty() && job.name() != request->name()) continue;
      if (!request->owner().empty() && job.owner() != request->owner()) continue;
      if (!states.empty() &&
          std::find(states.begin(), states.end(), job.status().state()) == states.end()) {
        continue;
      }
      if (response->jobs_size() == 2) {
        response->set_next_page_token(std::to_string(response->jobs(1).id()));
        break;
      }
      job.clear_spec();
      *response->add_jobs() = job;
    }
    return grpc::Status::OK;
  }
  grpc::Status Watch(Context* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    if (auto refused = Begin(*context, "Watch"); !refused.ok()) return refused;
    size_t next = request->after_sequence();
    if (Faults().repeat && next > 0) --next;
    size_t told = 0;
    for (int sent = 0; !context->IsCancelled() && !stopping;) {
      v1::WatchResponse response;
      bool last = false;
      {
        const std::lock_guard lock(mutex);
        if (next < events.size()) {
          const v1::Event& event = events[next++];
          if (request->job_id() != 0 && event.job_id() != request->job_id()) continue;
          *response.mutable_event() = event;
          last = Ended(event.state_changed().to()) && request->job_id() != 0;
        } else if (request->no_follow()) {
          return grpc::Status::OK;
        } else if (told < reports.size()) {
          *response.mutable_progress() = reports[told++];
        }
      }
      if (response.what_case() == v1::WatchResponse::WHAT_NOT_SET) {
        std::this_thread::sleep_for(kLook);
        continue;
      }
      writer->Write(response);
      if (last) return grpc::Status::OK;
      if (++sent == Faults().cut_after) break;
    }
    return {grpc::StatusCode::UNAVAILABLE, "cut"};
  }
  grpc::Status Logs(Context* context, const v1::LogsRequest* request,
                    grpc::ServerWriter<v1::LogsResponse>* writer) override {
    if (auto refused = Begin(*context, "Logs"); !refused.ok()) return refused;
    v1::Job job;
    {
      const std::lock_guard lock(mutex);
      job = jobs[request->job_id()];
    }
    const uint32_t attempt = request->attempt() == 0 ? job.status().attempt() : request->attempt();
    int64_t at = request->offset();
    for (int sent = 0; !context->IsCancelled() && !stopping;) {
      v1::LogsResponse response;
      {
        const std::lock_guard lock(mutex);
        const std::string& log = logs[{attempt, request->rank()}];
        const auto size = static_cast<int64_t>(log.size());
        if (at < 0) at = std::max<int64_t>(0, size + at);
        if (sent == 0 && faults.repeat) at = std::max<int64_t>(0, at - 3);
        response.set_data(log.substr(static_cast<size_t>(std::min(at, size)), faults.chunk));
        const v1::JobStatus& status = jobs[request->job_id()].status();
        const bool over = Ended(status.state()) || status.attempt() != attempt;
        if (response.data().empty() && (over || !request->follow())) return grpc::Status::OK;
      }
      if (response.data().empty()) {
        std::this_thread::sleep_for(kLook);
        continue;
      }
      response.set_offset(static_cast<uint64_t>(at));
      response.set_attempt(attempt);
      at += static_cast<int64_t>(response.data().size());
      writer->Write(response);
      if (++sent == Faults().cut_after) break;
    }
    return {grpc::StatusCode::UNAVAILABLE, "cut"};
  }
  grpc::Status Cancel(Context* context, const v1::CancelRequest* request,
                      v1::Job* response) override {
    grace = request->grace_seconds();
    return OnJob(*context, "Cancel", request->job_id(), response, [](v1::Job& job) {
      job.mutable_status()->set_desired_state(v1::JOB_DESIRED_CANCEL);
    });
  }
  grpc::Status Pause(Context* context, const v1::PauseRequest* request,
                     v1::Job* response) override {
    return OnJob(*context, "Pause", request->job_id(), response, [](v1::Job& job) {
      job.mutable_status()->set_state(v1::JOB_PAUSING);
      job.mutable_status()->set_desired_state(v1::JOB_DESIRED_PAUSE);
    });
  }
  grpc::Status Resume(Context* context, const v1::ResumeRequest* request,
                      v1::Job* response) override {
    return OnJob(*context, "Resume", request->job_id(), response, [](v1::Job& job) {
      job.mutable_status()->set_state(v1::JOB_PENDING);
      job.mutable_status()->set_desired_state(v1::JOB_DESIRED_RUN);
    });
  }
  grpc::Status ListCheckpoints(Context* context, const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override {
    if (auto refused = Begin(*context, "ListCheckpoints"); !refused.ok()) return refused;
    const std::lock_guard lock(mutex);
    *response = checkpoints;
    if (faults.newest_damaged) response->add_damaged("/step-700: cut short");
    return grpc::Status::OK;
  }
  grpc::Status PreviewPlan(Context* context, const v1::PreviewPlanRequest* request,
                           v1::PreviewPlanResponse* response) override {
    if (auto refused = Begin(*context, "PreviewPlan"); !refused.ok()) return refused;
    response->set_text("the plan of " + request->job().name() + "\n");
    response->set_json("{\"schedule\":\"1f1b\"}");
    return grpc::Status::OK;
  }
  grpc::Status ListFiles(Context* context, const v1::ListFilesRequest*,
                         v1::ListFilesResponse* response) override {
    if (auto refused = Begin(*context, "ListFiles"); !refused.ok()) return refused;
    const std::lock_guard lock(mutex);
    for (const auto& [path, content] : files) {
      v1::FileInfo& file = *response->add_files();
      file.set_path(path);
      file.set_bytes(content.size() + faults.bytes_gone);
    }
    return grpc::Status::OK;
  }
  grpc::Status ReadFile(Context* context, const v1::ReadFileRequest* request,
                        grpc::ServerWriter<v1::ReadFileResponse>* writer) override {
    if (auto refused = Begin(*context, "ReadFile"); !refused.ok()) return refused;
    const std::lock_guard lock(mutex);
    const std::string& content = files[request->path()];
    auto at = static_cast<size_t>(request->offset());
    const size_t end = request->most_bytes() == 0
                           ? content.size()
                           : std::min(content.size(), at + request->most_bytes());
    if (faults.repeat && at > 2) at -= 3;
    for (int sent = 0; at < end;) {
      v1::ReadFileResponse response;
      response.set_offset(at);
      response.set_data(content.substr(at, std::min(faults.chunk, end - at)));
      at += response.data().size();
      writer->Write(response);
      if (++sent == faults.cut_after) return {grpc::StatusCode::UNAVAILABLE, "cut"};
    }
    return grpc::Status::OK;
  }
  // In two parts.
  grpc::Status Backup(Context* context, const v1::BackupRequest* request,
                      grpc::ServerWriter<v1::BackupResponse>* writer) override {
    if (auto refused = Begin(*context, "Backup"); !refused.ok()) return refused;
    v1::BackupResponse response;
    response.set_file(request->folder() + "/jobs-2026-11-26T101530Z.db");
    response.set_bytes_total(2048);
    response.set_bytes_done(1024);
    writer->Write(response);
    if (Faults().cut_after == 1) return {grpc::StatusCode::UNAVAILABLE, "its disk is full"};
    response.set_bytes_done(2048);
    response.set_jobs(3);
    response.set_events(1);
    response.set_done(true);
    writer->Write(response);
    return grpc::Status::OK;
  }
  // In three parts; what is asked for is what is answered.
  grpc::Status Export(Context* context, const v1::ExportRequest* request,
                      grpc::ServerWriter<v1::ExportResponse>* writer) override {
    if (auto refused = Begin(*context, "Export"); !refused.ok()) return refused;
    v1::ExportResponse response;
    response.set_folder(request->folder().empty() ? "/runs/exports/step-600" : request->folder());
    response.set_step(request->step() == 0 ? 600 : request->step());
    response.set_bytes_total(300);
    const FakeFaults now = Faults();
    if (now.newest_damaged) response.add_passed_over("/step-700: cut short");
    for (int part = 1; part <= 3; ++part) {
      response.set_bytes_done(static_cast<uint64_t>(100 * part));
      response.set_done(part == 3);
      writer->Write(response);
      while (part == 2 && now.hold_exports && !context->IsCancelled() && !stopping) {
        std::this_thread::sleep_for(kLook);
      }
      if (context->IsCancelled()) exports_left = exports_left + 1;
      if (part == now.cut_after || context->IsCancelled()) {
        return {grpc::StatusCode::UNAVAILABLE, "cut"};
      }
    }
    return grpc::Status::OK;
  }
  grpc::Status Drain(Context* context, const v1::DrainRequest* request,
                     v1::Node* response) override {
    return OnNode(*context, "Drain", request->node(), response, [&](v1::Node& node) {
      node.set_drained(true);
      node.set_reason(request->reason());
    });
  }
  grpc::Status Undrain(Context* context, const v1::UndrainRequest* request,
                       v1::Node* response) override {
    return OnNode(*context, "Undrain", request->node(), response, [&](v1::Node& node) {
      node.set_drained(false);
      node.clear_reason();
    });
  }
  // Keeps what is held of the store "ours".
  grpc::Status AdoptNode(Context* context, const v1::AdoptNodeRequest* request,
                         v1::AdoptNodeResponse* response) override {
    return OnNode(
        *context, "AdoptNode", request->node(), response->mutable_node(), [&](v1::Node& node) {
          for (const v1::HeldAttempt& held : node.held()) {
            *(held.store() == "ours" ? response->add_kept() : response->add_ended()) = held;
          }
          node.clear_held();
          node.clear_refuses_for();
        });
  }
  grpc::Status GetCluster(Context* context, const v1::GetClusterRequest*,
                          v1::Cluster* response) override {
    if (auto refused = Begin(*context, "GetCluster"); !refused.ok()) return refused;
    const std::lock_guard lock(mutex);
    *response = cluster;
    return grpc::Status::OK;
  }

  mutable std::mutex mutex;
  std::atomic<bool> stopping = false;
  std::atomic<double> grace = 0;
  std::atomic<int> exports_left = 0;
  FakeFaults faults;
  std::map<uint64_t, v1::Job> jobs;
  std::vector<v1::Event> events;
  std::vector<v1::JobProgress> reports;
  std::map<std::pair<uint32_t, int>, std::string> logs;
  std::map<std::string, uint64_t> submissions;
  v1::ListCheckpointsResponse checkpoints;
  std::map<std::string, std::string> files;
  v1::Cluster cluster;
  std::vector<std::string> calls;
  std::string authorization;
  v1::SubmitRequest submit;

 private:
  FakeFaults Faults() const {
    const std::lock_guard lock(mutex);
    return faults;
  }

  grpc::Status StatusOf(const absl::Status& status) const {
    const std::string message(status.message());
    const auto code = static_cast<grpc::StatusCode>(status.code());
    const auto details = Faults().details;
    return {code, message,
            details.empty() ? "" : PackErrorDetails(status.code(), message, details)};
  }

  grpc::Status Begin(const Context& context, const std::string& name) {
    {
      const std::lock_guard lock(mutex);
      calls.push_back(name);
      const auto found = context.client_metadata().find("authorization");
      authorization = found == context.client_metadata().end()
                          ? ""
                          : std::string(found->second.data(), found->second.size());
    }
    const auto before = Faults().before;
    const absl::Status status = before ? before(name) : absl::OkStatus();
    return status.ok() ? grpc::Status::OK : StatusOf(status);
  }

  template <typename Change>
  grpc::Status OnJob(const Context& context, const std::string& name, uint64_t id,
                     v1::Job* response, const Change& change) {
    if (auto refused = Begin(context, name); !refused.ok()) return refused;
    const std::lock_guard lock(mutex);
    const auto found = jobs.find(id);
    if (found == jobs.end()) {
      return {grpc::StatusCode::NOT_FOUND, "there is no job " + std::to_string(id)};
    }
    change(found->second);
    *response = found->second;
    return grpc::Status::OK;
  }

  template <typename Change>
  grpc::Status OnNode(const Context& context, const std::string& call, const std::string& name,
                      v1::Node* response, const Change& change) {
    if (auto refused = Begin(context, call); !refused.ok()) return refused;
    const std::lock_guard lock(mutex);
    for (v1::Node& node : *cluster.mutable_nodes()) {
      if (node.name() != name) continue;
      change(node);
      *response = node;
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, "there is no node " + name};
  }
};

struct FakeControl::Server {
  std::string folder;
  Service service;
  std::unique_ptr<grpc::Server> server;
};

FakeControl::FakeControl() : server_(std::make_unique<Server>()) {
  char path[] = "/tmp/trireme_control_XXXXXX";
  TRIREME_CHECK(mkdtemp(path) != nullptr);
  server_->folder = path;
  Start();
}

FakeControl::~FakeControl() {
  Stop();
  std::filesystem::remove_all(server_->folder);
}

void FakeControl::Stop() {
  if (server_->server == nullptr) return;
  server_->service.stopping = true;
  server_->server->Shutdown(std::chrono::system_clock::now());
  server_->server.reset();
}

void FakeControl::Start() {
  server_->service.stopping = false;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
  builder.RegisterService(&server_->service);
  server_->server = builder.BuildAndStart();
  TRIREME_CHECK(server_->server != nullptr);
}

const std::string& FakeControl::folder() const { return server_->folder; }
std::string FakeControl::address() const { return "unix:" + server_->folder + "/triremed.sock"; }

void FakeControl::set_faults(FakeFaults faults) {
  const std::lock_guard lock(server_->service.mutex);
  server_->service.faults = std::move(faults);
}

void FakeControl::Put(const v1::Job& job) {
  const std::lock_guard lock(server_->service.mutex);
  server_->service.jobs[job.id()] = job;
}

void FakeControl::Put(const v1::Node& node) {
  const std::lock_guard lock(server_->service.mutex);
  *server_->service.cluster.add_nodes() = node;
}

void FakeControl::Tell(v1::Event event) {
  const std::lock_guard lock(server_->service.mutex);
  event.set_sequence(server_->service.events.size() + 1);
  server_->service.events.push_back(event);
}

void FakeControl::Enter(uint64_t job_id, v1::JobState state, const std::string& reason) {
  v1::Event event;
  event.set_job_id(job_id);
  v1::Job job = this->job(job_id);
  event.mutable_state_changed()->set_from(job.status().state());
  event.mutable_state_changed()->set_to(state);
  event.mutable_state_changed()->set_reason(reason);
  event.set_attempt(job.status().attempt());
  job.mutable_status()->set_state(state);
  job.mutable_status()->set_reason(reason);
  *event.mutable_state_changed()->mutable_failure() = job.status().failure();
  Put(job);
  Tell(event);
}

void FakeControl::Report(uint64_t job_id, const v1::Progress& progress) {
  const std::lock_guard lock(server_->service.mutex);
  v1::JobProgress& report = server_->service.reports.emplace_back();
  report.set_job_id(job_id);
  *report.mutable_progress() = progress;
}

void FakeControl::Append(uint32_t attempt, int rank, const std::string& log) {
  const std::lock_guard lock(server_->service.mutex);
  server_->service.logs[{attempt, rank}] += log;
}

void FakeControl::AddCheckpoint(const v1::CheckpointInfo& checkpoint) {
  const std::lock_guard lock(server_->service.mutex);
  *server_->service.checkpoints.add_checkpoints() = checkpoint;
}

void FakeControl::PutFile(const std::string& path, const std::string& content) {
  const std::lock_guard lock(server_->service.mutex);
  server_->service.files[path] = content;
}

int FakeControl::exports_left() const { return server_->service.exports_left; }

v1::Job FakeControl::job(uint64_t id) const {
  const std::lock_guard lock(server_->service.mutex);
  return server_->service.jobs[id];
}

std::vector<std::string> FakeControl::calls() const {
  const std::lock_guard lock(server_->service.mutex);
  return server_->service.calls;
}

std::string FakeControl::authorization() const {
  const std::lock_guard lock(server_->service.mutex);
  return server_->service.authorization;
}

v1::SubmitRequest FakeControl::last_submit() const {
  const std::lock_guard lock(server_->service.mutex);
  return server_->service.submit;
}

double FakeControl::last_grace() const { return server_->service.grace; }

}  // namespace trireme::client
