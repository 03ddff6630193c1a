#include "tests/coordinator/control_api/served_store.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <utility>

namespace trireme::coordinator {
namespace {

// Role, user, and whose token it is in the tests. An agent may have the name of somebody who has
// jobs.
constexpr const char* kPeople[][3] = {{"submit", "ann", "ann"},   {"submit", "ben", "ben"},
                                      {"operator", "ola", "ola"}, {"admin", "root", "root"},
                                      {"agent", "ann", "agent"},  {"agent", "rack", "rack"}};

std::string TokenOf(const std::string& user) { return "token-of-" + user + "-0123456789"; }

void WriteTokens(const std::string& path, const std::string& left_out = "") {
  std::ofstream file(path);
  for (const auto& [role, user, holder] : kPeople) {
    if (holder == left_out) continue;
    file << role << ' ' << user << ' ' << TokenOf(holder);
    file << (std::string_view(holder) == "rack" ? " nodes=n1" : "") << '\n';
  }
}

Access LoadAccess(const std::string& path) {
  WriteTokens(path);
  chmod(path.c_str(), 0600);
  auto access = Access::Load(path);
  REQUIRE(access.ok());
  return *std::move(access);
}

template <typename T>
T Taken(absl::StatusOr<T> result) {
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return *std::move(result);
}

}  // namespace

v1::JobSpec TinyJob(const std::string& text_file) {
  v1::JobSpec job;
  job.set_name("tiny");
  v1::ModelConfig& model = *job.mutable_model()->mutable_config();
  model.set_model_type("gpt2");
  model.set_hidden_size(8);
  model.set_num_hidden_layers(1);
  model.set_num_attention_heads(2);
  model.set_max_position_embeddings(8);
  job.mutable_data()->add_text_files(text_file);
  job.mutable_data()->set_tokenizer("char");
  job.mutable_data()->set_sequence_length(4);
  job.mutable_training()->set_steps(1);
  job.mutable_training()->set_global_batch_size(2);
  job.mutable_training()->set_micro_batch_size(1);
  return job;
}

ServedStore::ServedStore(const Limits& limits, const UserCaps& caps, DiskCallsOptions reads,
                         std::unique_ptr<JobStore> store)
    : limits_(limits),
      caps_(caps),
      access_(LoadAccess(scratch_.path() + "/tokens")),
      store_(std::make_shared<HeldStore>(store ? std::move(store)
                                               : Taken(JobStore::Open(":memory:")))),
      reads_(table_, store_, scratch_.path() + "/jobs.db", std::move(reads)) {}

ServedStore::~ServedStore() { End(); }

void ServedStore::End() {
  disks_.Stop();
  reads_.Stop();
  server_.reset();
  planner_.reset();
  reconciler_thread_.reset();
}

v1::Job ServedStore::AddJob(uint64_t id, const std::string& owner) {
  v1::Job job;
  job.set_id(id);
  job.set_name("tiny");
  job.set_owner(owner);
  job.set_run_folder(folder() + "/jobs/" + std::to_string(id));
  std::filesystem::create_directories(job.run_folder());
  job.mutable_status()->set_state(v1::JOB_COMPLETED);
  job.mutable_status()->set_attempt(1);
  PutJob(job);
  return job;
}

void ServedStore::PutJob(const v1::Job& job) {
  Change change;
  change.jobs.push_back(job);
  REQUIRE(store_->Commit(change).ok());
}

void ServedStore::AddEvents(uint64_t job_id, size_t count) {
  Change change;
  for (size_t i = 0; i < count; ++i) {
    v1::Event& event = change.events.emplace_back();
    event.set_job_id(job_id);
    event.mutable_checkpointed()->set_step(i + 1);
  }
  REQUIRE(store_->Commit(change).ok());
}

void ServedStore::Serve(std::chrono::milliseconds lease, std::chrono::milliseconds lost_node_after,
                        RunFolders run_folders) {
  ReconcilerOptions options;
  options.jobs_folder = folder() + "/jobs";
  options.user_caps = caps_;
  ReconcilerPorts ports;
  ports.make_plan = [](const v1::Job&) {};
  ports.desired_changed = [](const std::string&) {};
  ports.report_taken = [this](const std::string& node, uint64_t number) {
    server_->SendTaken(node, number);
  };
  reconciler_ = Taken(Reconciler::Open(options, ports, *store_, *table_, NowUnixNs()));
  planner_ = std::make_unique<TaskThread>(TaskThreadOptions{.name = "planner", .between = {}});
  reconciler_thread_ = std::make_unique<TaskThread>(TaskThreadOptions{
      .name = "reconciler",
      .between = [this](int64_t now_unix_ns) { return reconciler_->Tick(now_unix_ns); }});
  ListenOptions listen;
  listen.socket.path = socket();
  listen.address = "127.0.0.1:0";
  ApiRooms rooms{store_,  *table_, *reconciler_, *reconciler_thread_, *planner_, disks_, reads_,
                 access_, {},      lease};
  rooms.lost_node_after = lost_node_after;
  rooms.run_folders = std::move(run_folders);
  server_ = Taken(ApiServer::Start(listen, limits_, rooms));
}

void ServedStore::TakeBack(const std::string& holder) {
  WriteTokens(folder() + "/tokens", holder);
  REQUIRE(access_.Reload().ok());
  server_->EndUnknown();
}

void ServedStore::PublishJob(const v1::Job& job) { table_->Publish({job}, {}); }

void ServedStore::PutProgress(uint64_t job_id, uint64_t steps_done) {
  v1::Progress progress;
  progress.set_steps_done(steps_done);
  table_->PutProgress(job_id, progress);
}

std::shared_ptr<grpc::Channel> ServedStore::ChannelOf(const std::string& user) {
  grpc::ChannelArguments own_connection;
  own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  own_connection.SetString(GRPC_ARG_PRIMARY_USER_AGENT_STRING, user);
  own_connection.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                   grpc::InsecureChannelCredentials(), own_connection);
}

std::unique_ptr<v1::Control::Stub> ServedStore::StubOf(const std::string& user) {
  return v1::Control::NewStub(ChannelOf(user));
}

void ServedStore::Prepare(grpc::ClientContext& context, const std::string& user) {
  if (!user.empty()) context.AddMetadata("authorization", "Bearer " + TokenOf(user));
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
}

}  // namespace trireme::coordinator
