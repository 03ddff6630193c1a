// gRPC over a unix socket, its blocking interface: whoever must not block does not call it.
#include "worker/link/keeper_link.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/pinned_folder.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/steady_wait.h"
#include "runtime/base/text.h"
#include "trireme/v1/worker.grpc.pb.h"

namespace trireme::worker {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kUnix = "unix:";
constexpr milliseconds kLook(20);       // for a socket to appear
constexpr milliseconds kAskAgain(200);  // after a keeper's "not yet"
constexpr milliseconds kReportEvery(1000);
constexpr milliseconds kFirstDelay(200);  // before dialling again
constexpr milliseconds kLongestDelay(5000);
constexpr int kMostBytes = 64 << 20;  // of an answer

bool SocketIsThere(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 && S_ISSOCK(about.st_mode);
}

// To who listens in `folder`, and nowhere else however often it dials.
std::unique_ptr<v1::WorkerLink::Stub> DialIn(const base::PinnedFolder& folder,
                                             const std::string& name) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kFirstDelay.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kFirstDelay.count()));
  // Else channels to one path are one connection, which may be of another folder's time.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const std::string address = std::string(kUnix) + folder.PathOf(name);
  return v1::WorkerLink::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

// Another answer would not follow from asking again.
bool IsVerdict(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::NOT_FOUND ||
         status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ||
         status.error_code() == grpc::StatusCode::DATA_LOSS;
}

class GrpcKeeperLink : public KeeperLink {
 public:
  explicit GrpcKeeperLink(const KeeperLinkOptions& options)
      : options_(options),
        path_(options.address.substr(kUnix.size())),
        name_(path_.substr(path_.rfind('/') + 1)) {}

  ~GrpcKeeperLink() override {
    {
      const absl::MutexLock lock(&mutex_);
      ended_ = true;
      ending_.SignalAll();
      if (call_ != nullptr) call_->TryCancel();
    }
    if (reporter_.joinable()) reporter_.join();
  }

  absl::StatusOr<v1::Plan> Join(const JoinPatience& patience) override {
    const Clock::time_point appear_by = Clock::now() + patience.appear;
    auto folder = KeepersFolder();
    while (absl::IsNotFound(folder.status()) && Clock::now() < appear_by) {
      std::this_thread::sleep_for(kLook);
      folder = KeepersFolder();
    }
    RETURN_IF_ERROR(folder.status());
    const auto stub = DialIn(*folder, name_);
    const Clock::time_point answer_by = Clock::now() + patience.answer;
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(base::TimeOfDayAt(answer_by));
      // A socket without a listener, of a keeper that has died, may have one again soon.
      context.set_wait_for_ready(true);
      v1::JoinResponse response;
      const grpc::Status status = stub->Join(&context, options_.who, &response);
      if (status.ok()) return std::move(*response.mutable_plan());
      if (IsVerdict(status)) {
        return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                            base::Text("the keeper of this node: ", status.error_message()));
      }
      if (Clock::now() + kAskAgain > answer_by) {
        return absl::UnavailableError(base::Text("the keeper of this node does not answer at ",
                                                 path_, ": ", status.error_message()));
      }
      std::this_thread::sleep_for(kAskAgain);
    }
  }

  void StartReports(std::function<v1::RankStatus()> status) override {
    reporter_ = std::thread([this, status = std::move(status)] { Report(status); });
  }

 private:
  // With a socket in it. Unavailable: others may have put it there.
  absl::StatusOr<base::PinnedFolder> KeepersFolder() const {
    auto folder = base::OpenOwnFolder(path_.substr(0, path_.rfind('/')));
    if (folder.ok() && SocketIsThere(folder->PathOf(name_))) return folder;
    if (folder.ok() || absl::IsNotFound(folder.status())) {
      return absl::NotFoundError(base::Text("no keeper listens on this node at ", path_));
    }
    return absl::UnavailableError(
        base::Text("no keeper of ours listens on this node: ", base::MessageOf(folder.status())));
  }

  // False: it is time to end.
  bool Sleep(milliseconds time) {
    const absl::MutexLock lock(&mutex_);
    const Clock::time_point until = Clock::now() + time;
    while (!ended_) {
      if (ending_.WaitUntil(&mutex_, until)) break;
    }
    return !ended_;
  }

  void Report(const std::function<v1::RankStatus()>& status) {
    milliseconds delay = kFirstDelay;
    do {
      // Without a look first, gRPC is not even set up on nodes that have no keeper.
      const auto folder = KeepersFolder();
      const bool heard = folder.ok() && Stream(*folder, status);
      delay = heard ? kFirstDelay : std::min(2 * delay, kLongestDelay);
    } while (Sleep(delay));
  }

  // Until the line breaks or it is time to end; whether anything was taken.
  bool Stream(const base::PinnedFolder& folder, const std::function<v1::RankStatus()>& status) {
    const auto stub = DialIn(folder, name_);
    grpc::ClientContext context;
    {
      const absl::MutexLock lock(&mutex_);
      if (ended_) return false;
      call_ = &context;
    }
    v1::ReportResponse response;
    const auto writer = stub->Report(&context, &response);
    int written = 0;
    const auto look = [&status] {
      const int64_t looked_ns = base::BoottimeNs();
      v1::RankStatus said = status();
      said.set_looked_boottime_ns(looked_ns);
      return said;
    };
    while (writer->Write(look())) {
      ++written;
      if (!Sleep(kReportEvery)) break;
    }
    context.TryCancel();
    writer->Finish();
    const absl::MutexLock lock(&mutex_);
    call_ = nullptr;
    return written > 1;
  }

  const KeeperLinkOptions options_;
  const std::string path_;
  const std::string name_;  // in its folder
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  base::SteadyCondVar ending_;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the reporter
  std::thread reporter_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KeeperLink>> KeeperLink::Open(const KeeperLinkOptions& options) {
  if (options.address.rfind(std::string(kUnix) + '/', 0) != 0) {
    return absl::InvalidArgumentError(
        base::Text("--link: \"", options.address, "\" is no address; expected unix:/PATH"));
  }
  return std::make_unique<GrpcKeeperLink>(options);
}

}  // namespace trireme::worker
