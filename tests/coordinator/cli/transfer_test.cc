// `trireme export`, `backup` and `files` from outside, and errors for programs.
#include <nlohmann/json.hpp>

#include "tests/coordinator/cli/control_room.h"

namespace trireme::cli {
namespace {

TEST_CASE("export: the folder alone on stdout and asked for as a person means it") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_COMPLETED));
  const Said newest = room.Run("export demo");
  CHECK(newest.code == 0);
  CHECK(newest.out == "/runs/exports/step-600\n");
  CHECK(Holds(newest.err, "job 1 (demo), step 600"));
  // The daemon has another current folder.
  CHECK(room.Run("export 1 --step 20 --to out/").out == room.daemon.folder() + "/out\n");
  const Said json = room.Run("export 1 --json");
  CHECK(Count(json.out, "\n") == 3);
  CHECK(json.err.empty());
  CHECK(FromJson<v1::ExportResponse>(json.out.substr(json.out.rfind("\n{") + 1)).done());
  CHECK(room.Run("export 1 --step 0").code == 2);
}

TEST_CASE(
    "export: a newer checkpoint that is damaged is named once, and what is exported instead") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_COMPLETED));
  FakeFaults faults;
  faults.newest_damaged = true;
  room.daemon.set_faults(faults);
  const Said said = room.Run("export demo");
  CHECK(said.code == 0);
  CHECK(said.out == "/runs/exports/step-600\n");
  CHECK(Count(said.err, "passed over as damaged: /step-700: cut short; step 600 is exported") == 1);
  CHECK(Count(room.Run("export demo --json").err, "/step-700: cut short") == 1);
  // Also where nothing comes of it.
  faults.cut_after = 1;
  room.daemon.set_faults(faults);
  CHECK(Holds(room.Run("export demo").err, "/step-700: cut short"));
}

TEST_CASE("export: an interruption is its end and Ctrl-C gives it up") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_RUNNING));
  FakeFaults faults;
  faults.cut_after = 1;
  room.daemon.set_faults(faults);
  const Said cut = room.Run("export 1");
  CHECK(cut.code == 69);
  CHECK(Holds(cut.err, "the export was interrupted"));
  CHECK(cut.out.empty());
  faults = {};
  faults.hold_exports = true;
  room.daemon.set_faults(faults);
  const pid_t pid = room.Start("export 1 --json");
  room.Await("\"bytes_done\":\"200\"");
  kill(pid, SIGINT);
  CHECK(room.End(pid).code == 5);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (room.daemon.exports_left() == 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(room.daemon.exports_left() == 1);
}

TEST_CASE("backup: the file alone on stdout, what is in it on stderr") {
  Room room;
  // The daemon has another current folder.
  const std::string file = room.daemon.folder() + "/kept/jobs-2026-11-26T101530Z.db";
  const Said made = room.Run("backup kept/");
  CHECK(made.code == 0);
  CHECK(made.out == file + "\n");
  CHECK(Holds(made.err, "3 jobs and 1 event in 2.00 KiB, checked"));
  const Said json = room.Run("backup kept --json");
  CHECK(Count(json.out, "\n") == 2);
  CHECK(json.err.empty());
  const auto last = FromJson<v1::BackupResponse>(json.out.substr(json.out.find("\n{") + 1));
  CHECK((last.done() && last.file() == file && last.jobs() == 3 && last.events() == 1));
  CHECK(room.Run("backup").code == 2);
  CHECK(room.Run("backup ''").code == 2);
  FakeFaults faults;
  faults.cut_after = 1;
  room.daemon.set_faults(faults);
  const Said cut = room.Run("backup kept");
  CHECK(cut.code == 69);
  CHECK(cut.out.empty());
  CHECK(Holds(cut.err, "there is no backup, and nothing is left of it: "));
  CHECK(Holds(cut.err, "its disk is full"));
}

TEST_CASE("files: listed and fetched whole though the daemon cuts and repeats") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_RUNNING));
  CHECK(Holds(room.Run("files 1").out, "has left no files yet"));
  const std::string metrics = "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.25}\n";
  room.daemon.PutFile("metrics.jsonl", metrics);
  room.daemon.PutFile("pictures/schedule.svg", "<svg/>\n");
  room.daemon.PutFile("logs/empty", "");
  CHECK(Holds(room.Run("files demo").out, "pictures/schedule.svg\n"));
  CHECK(FromJson<v1::ListFilesResponse>(room.Run("files 1 --json").out).files_size() == 3);
  FakeFaults faults;
  faults.repeat = true;
  faults.cut_after = 2;
  room.daemon.set_faults(faults);
  CHECK(room.Run("files 1 metrics.jsonl -o -").out == metrics);
  const std::string folder = room.daemon.folder() + "/";
  CHECK(room.Run("files 1 metrics.jsonl").out == "metrics.jsonl\n");
  CHECK(Slurp(folder + "metrics.jsonl") == metrics);
  CHECK(room.Run("files 1 pictures/schedule.svg -o .").code == 0);
  CHECK(Slurp(folder + "schedule.svg") == "<svg/>\n");
  CHECK(room.Run("files 1 logs/empty --out none").code == 0);
  CHECK(access((folder + "none").c_str(), F_OK) == 0);
  const Said json = room.Run("files 1 metrics.jsonl --out copy --json");
  CHECK(FromJson<v1::FileInfo>(json.out).bytes() == metrics.size());
  CHECK(room.Run("files 1 metrics.jsonl --out - --json").code == 2);
}

TEST_CASE("files: nothing is replaced unasked and nothing is left of what is not whole") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_RUNNING));
  room.daemon.PutFile("report.html", "new report, of some length");
  const std::string mine = room.daemon.folder() + "/report.html";
  std::ofstream(mine) << "mine";
  CHECK(room.Run("files 1 report.html").code == 2);
  const Said typo = room.Run("files 1 report.htm");
  CHECK(typo.code == 2);
  CHECK(Holds(typo.err, "did you mean report.html?"));
  FakeFaults faults;
  faults.bytes_gone = 5;
  room.daemon.set_faults(faults);
  const Said shorter = room.Run("files 1 report.html --force");
  CHECK(shorter.code == 4);
  CHECK(Holds(shorter.err, "26 of 31 bytes came"));
  CHECK(Slurp(mine) == "mine");
  CHECK(access((mine + ".partial").c_str(), F_OK) != 0);
  room.daemon.set_faults({});
  CHECK(room.Run("files 1 report.html --force").code == 0);
  CHECK(Slurp(mine) == "new report, of some length");
  CHECK(room.Run("files 1 report.html --out no/such/folder").code == 2);
}

nlohmann::json ErrorOf(const Said& said) {
  INFO(said.err);
  CHECK(said.out.empty());
  CHECK(Count(said.err, "\n") == 1);
  const auto json = nlohmann::json::parse(said.err, nullptr, /*allow_exceptions=*/false);
  REQUIRE(json.contains("error"));
  CHECK(json["error"]["exit_code"] == said.code);
  return json["error"];
}

TEST_CASE("json: an error is one line of JSON on stderr") {
  Room room;
  WriteJob(room.daemon.folder());
  CHECK(ErrorOf(room.Run("show 7 --json"))["code"] == "NOT_FOUND");
  CHECK(ErrorOf(room.Run("show --json"))["message"] == "job is required");
  CHECK(ErrorOf(room.Run("list --json --stat failed"))["code"] == "INVALID_ARGUMENT");
  FakeFaults faults;
  faults.before = [](const std::string&) { return absl::InvalidArgumentError("no"); };
  faults.details.emplace_back().set_field("job.training.steps");
  faults.details.back().set_message("is \"too\" large");
  room.daemon.set_faults(faults);
  const auto error = ErrorOf(room.Run("submit job.yaml --json"));
  CHECK(error["exit_code"] == 2);
  REQUIRE(error["details"].size() == 1);
  CHECK(error["details"][0]["field"] == "job.training.steps");
  CHECK(error["details"][0]["message"] == "is \"too\" large");
  room.daemon.Stop();
  CHECK(ErrorOf(room.Run("nodes --json"))["exit_code"] == 69);
}

TEST_CASE("submit: what does not fit is 3 and a full queue 69") {
  Room room;
  WriteJob(room.daemon.folder());
  FakeFaults faults;
  faults.before = [](const std::string&) { return absl::ResourceExhaustedError("too much"); };
  faults.details.emplace_back().set_message("too much");
  room.daemon.set_faults(faults);
  CHECK(room.Run("submit job.yaml").code == 69);
  faults.details[0].set_field("job");
  room.daemon.set_faults(faults);
  const Said large = room.Run("submit job.yaml");
  CHECK(large.code == 3);
  CHECK(large.err == "trireme: too much\n");
}

}  // namespace
}  // namespace trireme::cli
