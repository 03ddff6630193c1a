#include "tests/coordinator/keeper/link/link_bench.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "runtime/base/whole_file.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::keeper {
namespace {

// A socket without a listener, as of a process that was killed.
void LeaveSocket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  close(fd);
}

}  // namespace

LinkBench::LinkBench() : folder("/tmp/trireme_link_XXXXXX") {
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  auto made = plan::MakePlan(plan::SmallJob(), 4);
  INFO(made.status().ToString());
  REQUIRE(made.ok());
  plan = *std::move(made);
  seat.job_id = 7;
  seat.attempt = 3;
  seat.store = "one";
  seat.wanted = true;
  seat.ranks_here = seat.ranks = 4;
  seat.plan_file = folder + "/plan.pb";
  seat.socket = folder + "/link";
  REQUIRE(base::WriteWholeFile(seat.plan_file, plan::SerializePlan(plan)).ok());
}

LinkBench::~LinkBench() {
  links.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

void LinkBench::Listen() {
  if (!links) links = std::make_unique<WorkerLinks>();
  const absl::Status served = links->Serve({seat});
  INFO(served.ToString());
  REQUIRE(served.ok());
}

void LinkBench::HangUp(bool killed) {
  links.reset();
  if (killed) LeaveSocket(seat.socket);
}

v1::JoinRequest LinkBench::Who(uint32_t rank) const {
  v1::JoinRequest who;
  who.set_job_id(seat.job_id);
  who.set_attempt(seat.attempt);
  who.set_rank(rank);
  who.set_ranks(seat.ranks);
  return who;
}

std::unique_ptr<worker::KeeperLink> LinkBench::Dial(const v1::JoinRequest& who) const {
  auto link = worker::KeeperLink::Open({"unix:" + seat.socket, who});
  REQUIRE(link.ok());
  return *std::move(link);
}

absl::StatusOr<v1::Plan> LinkBench::Join(const v1::JoinRequest& who) const {
  return Dial(who)->Join(
      {.appear = std::chrono::milliseconds(100), .answer = std::chrono::seconds(60)});
}

v1::RankStatus LinkBench::Status(uint32_t rank, uint64_t step) const {
  v1::RankStatus status;
  status.set_job_id(seat.job_id);
  status.set_attempt(seat.attempt);
  status.mutable_rank()->set_rank(rank);
  status.mutable_rank()->set_step(step);
  status.mutable_rank()->set_position("F of micro-batch 1");
  if (rank == 0) status.mutable_progress()->set_steps_done(step);
  return status;
}

v1::AttemptReport LinkBench::Heard() const {
  v1::NodeReport report;
  v1::AttemptReport& attempt = *report.add_attempts();
  attempt.set_job_id(seat.job_id);
  attempt.set_attempt(seat.attempt);
  attempt.mutable_store()->set_store(seat.store);
  for (uint32_t rank = 0; rank < seat.ranks; ++rank) attempt.add_ranks()->set_rank(rank);
  if (links) links->Freshen(report);
  return report.attempts(0);
}

bool LinkBench::Await(const std::function<bool(const v1::AttemptReport&)>& done) const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < until) {
    if (done(Heard())) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace trireme::keeper
