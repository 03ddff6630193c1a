// The time of day is set back by an hour while a daemon says nothing: gRPC's timers wait by it.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/client/client.h"
#include "runtime/base/status_macros.h"
#include "tests/temporary_folder.h"
#include "tests/time_of_day.h"

namespace trireme::client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Whoever dials there is greeted as by gRPC, and hears nothing more.
class SilentDaemon {
 public:
  SilentDaemon() : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(fd_, 16) == 0);
    greeter_ = std::thread([this] {
      constexpr char kSettings[9] = {0, 0, 0, 4};  // an empty frame of these, RFC 9113, 4.1 and 6.5
      for (int caller = 0; (caller = accept(fd_, nullptr, nullptr)) >= 0;) {
        callers_.push_back(caller);
        // Catch counts for one thread.
        if (write(caller, kSettings, sizeof kSettings) != sizeof kSettings) ungreeted_ = true;
      }
    });
    options.address = "unix:" + path();
    options.timeout = options.reconnect_for = milliseconds(1000);
  }
  ~SilentDaemon() {
    shutdown(fd_, SHUT_RDWR);
    greeter_.join();
    CHECK_FALSE(ungreeted_);
    for (const int caller : callers_) close(caller);
    close(fd_);
  }
  SilentDaemon(const SilentDaemon&) = delete;
  SilentDaemon& operator=(const SilentDaemon&) = delete;

  ClientOptions options;

 private:
  std::string path() const { return folder_ / "silent.sock"; }

  const tests::TemporaryFolder folder_;
  const int fd_;
  std::thread greeter_;
  std::vector<int> callers_;
  std::atomic<bool> ungreeted_ = false;
};

// A minute is neither on time nor an hour later.
constexpr seconds kNotAnHour(60);

TEST_CASE("set clock: a call ends at its deadline, also when the time of day is set back") {
  const SilentDaemon daemon;
  const auto client = Client::Open(daemon.options);
  REQUIRE(client.ok());
  // gRPC's timers wait meanwhile, as for a ping.
  CHECK(absl::IsDeadlineExceeded((*client)->Call(v1::GetClusterRequest()).status()));
  const test::TimeOfDayAhead ahead(3600);
  const auto began = Clock::now();
  const absl::Status status = (*client)->Call(v1::GetClusterRequest()).status();
  INFO(status.ToString());
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(base::MessageOf(status), Catch::Contains("did not answer within 1 s"));
  CHECK(Clock::now() - began < kNotAnHour);
}

}  // namespace
}  // namespace trireme::client
