// A run folder whose file system does not answer: its own files do not, all else does.
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "coordinator/control_api/call.h"
#include "coordinator/control_api/exports.h"
#include "tests/coordinator/control_api/served_store.h"
#include "tests/coordinator/run_files/hung_mount.h"
#include "tests/skip.h"

namespace trireme::coordinator {
namespace {

void PutText(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

// All that a stream brings, and its end.
struct Whole {
  std::string text;
  grpc::Status status;
};

Whole ReadFileOf(v1::Control::Stub& stub, uint64_t job_id) {
  grpc::ClientContext context;
  ServedStore::Prepare(context, "ann");
  v1::ReadFileRequest request;
  request.set_job_id(job_id);
  request.set_path("metrics.jsonl");
  const auto reader = stub.ReadFile(&context, request);
  Whole whole;
  v1::ReadFileResponse piece;
  while (reader->Read(&piece)) whole.text += piece.data();
  whole.status = reader->Finish();
  return whole;
}

Whole LogOf(v1::Control::Stub& stub, uint64_t job_id) {
  grpc::ClientContext context;
  ServedStore::Prepare(context, "ann");
  v1::LogsRequest request;
  request.set_job_id(job_id);
  request.set_rank(-1);
  const auto reader = stub.Logs(&context, request);
  Whole whole;
  v1::LogsResponse piece;
  while (reader->Read(&piece)) whole.text += piece.data();
  whole.status = reader->Finish();
  return whole;
}

template <typename Request, typename Response>
grpc::Status AskAbout(v1::Control::Stub& stub,
                      grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Response*),
                      uint64_t job_id) {
  grpc::ClientContext context;
  ServedStore::Prepare(context, "ann");
  Request request;
  request.set_job_id(job_id);
  Response response;
  return (stub.*method)(&context, request, &response);
}

bool HangsAt(const grpc::Status& status, const std::string& folder) {
  const bool code = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
                    status.error_code() == grpc::StatusCode::UNAVAILABLE;
  UNSCOPED_INFO(status.error_code() << " " << status.error_message());
  return code && status.error_message().find("the file system at " + folder) != std::string::npos;
}

}  // namespace

TEST_CASE("a run folder that hangs takes no other's files along, nor the end of the daemon") {
  if (!MayHang()) TRIREME_SKIP("not here: root with /dev/fuse, who may mount what hangs");
  ServedStore served;
  std::vector<v1::Job> jobs;
  for (uint64_t id = 1; id <= 2; ++id) {
    jobs.push_back(served.AddJob(id, "ann"));
    PutText(jobs.back().run_folder() + "/metrics.jsonl", "a step\n");
    PutText(jobs.back().run_folder() + "/attempts/1/logs/mpirun.log", "a line\n");
  }
  served.Serve();
  const std::string gone = jobs[1].run_folder();
  const HungMount hung(gone);
  REQUIRE(hung.hangs());
  const auto stub = served.StubOf("ann");

  // More than there are threads for it.
  std::vector<std::thread> callers;
  std::vector<grpc::Status> ends(8);
  for (size_t i = 0; i < ends.size(); ++i) {
    callers.emplace_back([&, i] {
      switch (i % 4) {
        case 0:
          ends[i] = ReadFileOf(*stub, 2).status;
          break;
        case 1:
          ends[i] = LogOf(*stub, 2).status;
          break;
        case 2:
          ends[i] = AskAbout(*stub, &v1::Control::Stub::ListFiles, 2);
          break;
        default:
          ends[i] = AskAbout(*stub, &v1::Control::Stub::ListCheckpoints, 2);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    CHECK(ReadFileOf(*stub, 1).text == "a step\n");
    CHECK(LogOf(*stub, 1).text == "a line\n");
    CHECK(AskAbout(*stub, &v1::Control::Stub::ListFiles, 1).ok());
    CHECK(AskAbout(*stub, &v1::Control::Stub::ListCheckpoints, 1).ok());
    CHECK(AskAbout(*stub, &v1::Control::Stub::Get, 2).ok());
  }
  for (std::thread& caller : callers) caller.join();
  for (const grpc::Status& end : ends) CHECK(HangsAt(end, gone));
  // All of its threads hang, and are not replaced: nobody waits for them any more.
  const grpc::Status at_once = AskAbout(*stub, &v1::Control::Stub::ListFiles, 2);
  CHECK(at_once.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(HangsAt(at_once, gone));
  CHECK(ReadFileOf(*stub, 1).text == "a step\n");
  served.End();
}

static absl::Status EndOf(const ExportCall& call) {
  for (int i = 0; i < 6000 && !call.ended(); ++i) absl::SleepFor(absl::Milliseconds(10));
  return call.ended().value_or(absl::UnknownError("no end in a minute"));
}

TEST_CASE("an export to a mount that hangs ends, counts as hanging, and holds up none elsewhere") {
  if (!MayHang()) TRIREME_SKIP("not here: root with /dev/fuse, who may mount what hangs");
  const Scratch scratch;
  v1::Job job;
  job.set_id(1);
  job.set_run_folder(scratch.path() + "/run");
  std::filesystem::create_directories(job.run_folder());
  const std::string gone = scratch.path() + "/gone";
  std::filesystem::create_directories(gone);
  const HungMount hung(gone);
  REQUIRE(hung.hangs());
  const auto hanging = std::make_shared<std::atomic<size_t>>(0);
  Exports exports({}, "a store", hanging, std::chrono::milliseconds(300));
  v1::ExportRequest request;
  request.set_folder(gone + "/model");
  const auto held = std::make_shared<ExportCall>();
  REQUIRE(exports.Begin(job, request, held).ok());
  request.set_folder(scratch.path() + "/model");
  const auto other = std::make_shared<ExportCall>();
  REQUIRE(exports.Begin(job, request, other).ok());
  CHECK(absl::IsNotFound(EndOf(*other)));  // there is no checkpoint
  CHECK(absl::IsDeadlineExceeded(EndOf(*held)));
  for (int i = 0; i < 6000 && *hanging == 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  CHECK(*hanging == 1);
  // It has told where it was: who asks for that mount beside others is not kept waiting, and who
  // asks for the others is served.
  job.set_run_folder("/dev/shm/trireme-no-run-folder");
  request.set_folder(gone + "/model");
  const absl::Status refused = exports.Begin(job, request, std::make_shared<ExportCall>());
  CHECK(absl::IsUnavailable(refused));
  CHECK(HangsAt(ToGrpc(refused), gone));
  request.set_folder(scratch.path() + "/model");
  const auto beside = std::make_shared<ExportCall>();
  REQUIRE(exports.Begin(job, request, beside).ok());
  CHECK(absl::IsNotFound(EndOf(*beside)));
}

}  // namespace trireme::coordinator
