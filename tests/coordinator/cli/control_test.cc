// The subcommands that speak to the daemon, from outside, against one of a few lines: exit codes,
// what they print, what they ask for.
#include <atomic>
#include <sstream>

#include "absl/time/clock.h"
#include "tests/coordinator/cli/control_room.h"

namespace trireme::cli {
namespace {

TEST_CASE("submit: the number alone on stdout, and a repeat makes no second job") {
  Room room;
  WriteJob(room.daemon.folder());
  const Said said = room.Run("submit job.yaml --request-id one --set training.steps=9");
  CHECK(said.code == 0);
  CHECK(said.out == "1\n");
  CHECK(Holds(said.err, "job 1 (tiny)"));
  const v1::JobSpec sent = room.daemon.last_submit().job();
  CHECK(sent.training().steps() == 9);
  CHECK(sent.data().text_files(0) == room.daemon.folder() + "/text.txt");
  CHECK(sent.runtime().runs_directory() == room.daemon.folder() + "/runs");
  CHECK_FALSE(Holds(said.err, "warning"));
  const Said again = room.Run("submit job.yaml --request-id one --set training.steps=7");
  CHECK(again.code == 0);
  CHECK(again.out == "1\n");
  CHECK(Holds(again.err, "warning: request id one was used before: this is job 1 as it was"));
  CHECK(room.Run("submit job.yaml").out == "2\n");
  CHECK(room.Run("submit job.yaml").out == "3\n");
  const Said unset = room.Run("submit job.yaml --request-id ''");
  CHECK(unset.code == 2);
  CHECK(Holds(unset.err, "it is empty"));
  const Said json = room.Run("submit job.yaml --request-id one --json");
  CHECK(FromJson<v1::SubmitResponse>(json.out).repeated());
  CHECK(json.err.empty());
}

TEST_CASE("submit: what is wrong is found before it is sent, or told by the daemon by field") {
  Room room;
  WriteJob(room.daemon.folder());
  CHECK(room.Run("submit job.yaml --set training.stps=9").code == 2);
  std::ofstream(room.daemon.folder() + "/text.txt") << "short";
  CHECK(room.Run("submit job.yaml").code == 2);
  CHECK(room.daemon.calls().empty());
  std::ofstream(room.daemon.folder() + "/elsewhere.yaml")
      << Slurp(room.daemon.folder() + "/job.yaml").replace(0, 10, "name: away");
  const Said away = room.Run("submit job.yaml --set data.text_files=[/head/only/text.txt]");
  CHECK(away.code == 0);
  CHECK(Holds(away.err, "warning"));
  WriteJob(room.daemon.folder());
  FakeFaults faults;
  faults.before = [](const std::string&) { return absl::InvalidArgumentError("no"); };
  faults.details.emplace_back().set_field("job.parallelism.data_parallel_size");
  faults.details.back().set_message("is more than the cluster has");
  room.daemon.set_faults(faults);
  const Said refused = room.Run("submit job.yaml");
  CHECK(refused.code == 2);
  CHECK(Holds(refused.err, "job.parallelism.data_parallel_size: is more than the cluster has"));
}

TEST_CASE("control: nobody there is 69, no answer is 69, refused is 77") {
  Room room;
  WriteJob(room.daemon.folder());
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_RUNNING));
  const std::vector<std::string> commands = {
      "submit job.yaml", "list",          "show 1",   "explain demo",
      "watch 1",         "logs 1",        "cancel 1", "pause 1",
      "resume 1",        "checkpoints 1", "nodes",    "drain n1 --reason x",
      "undrain n1",      "nodes adopt n1"};
  FailWith(room, absl::PermissionDeniedError("this job belongs to bob"));
  for (const std::string& command : commands) {
    CAPTURE(command);
    const Said denied = room.Run(command);
    CHECK(denied.code == 77);
    CHECK(Count(denied.err, "this job belongs to bob") == 1);
    CHECK(denied.out.empty());
  }
  FailWith(room, absl::UnauthenticatedError("no token"));
  const Said unknown = room.Run("list");
  CHECK(unknown.code == 77);
  CHECK(Holds(unknown.err, "--token-file"));
  FailWith(room, absl::ResourceExhaustedError("the queue is full"));
  CHECK(room.Run("submit job.yaml").code == 69);
  FakeFaults slow;
  slow.before = [](const std::string&) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return absl::OkStatus();
  };
  room.daemon.set_faults(slow);
  const Said late = room.Run("submit job.yaml --timeout 0.1");
  CHECK(late.code == 69);
  CHECK(Holds(late.err, "--request-id"));
  FakeFaults lost;
  lost.before = [](const std::string&) { return absl::UnavailableError("Socket closed"); };
  room.daemon.set_faults(lost);
  CHECK(Holds(room.Run("submit job.yaml").err, "if it has arrived nevertheless"));
  room.daemon.Stop();
  for (const std::string& command : commands) {
    CAPTURE(command);
    const Said alone = room.Run(command);
    CHECK(alone.code == 69);
    CHECK(Count(alone.err, "no coordinator answers at " + room.daemon.address()) == 1);
    CHECK_FALSE(Holds(alone.err, "if it has arrived nevertheless"));
  }
}

TEST_CASE("control: a name means the newest job of it, unless several have not ended") {
  Room room;
  room.daemon.Put(SomeJob(3, "demo", v1::JOB_FAILED));
  room.daemon.Put(SomeJob(4, "demo", v1::JOB_RUNNING));
  room.daemon.Put(SomeJob(5, "other", v1::JOB_RUNNING));
  CHECK(FromJson<v1::Job>(room.Run("show demo --json").out).id() == 4);
  CHECK(FromJson<v1::Job>(room.Run("show 3 --json").out).id() == 3);
  room.daemon.Put(SomeJob(6, "demo", v1::JOB_PENDING));
  // Three of them are on two pages.
  const Said several = room.Run("show demo");
  CHECK(several.code == 2);
  CHECK(Holds(several.err, "6 (pending), 4 (running)"));
  CHECK_FALSE(Holds(several.err, "3 ("));
  room.daemon.Put(SomeJob(4, "demo", v1::JOB_CANCELLED));
  room.daemon.Put(SomeJob(6, "demo", v1::JOB_COMPLETED));
  CHECK(FromJson<v1::Job>(room.Run("show demo --json").out).id() == 6);
  for (const char* command : {"show ''", "cancel ''", "pause ''", "logs ''"}) {
    const Said empty = room.Run(command);  // of a variable that is not set
    CHECK(empty.code == 2);
    CHECK(Holds(empty.err, "JOB is empty"));
  }
  CHECK(room.Run("show nobody").code == 2);
  CHECK(room.Run("show 77").code == 2);
}

TEST_CASE("list: those that have not ended, all pages of them, or what was asked for") {
  Room room;
  for (uint64_t id = 1; id <= 5; ++id) room.daemon.Put(SomeJob(id, "demo", v1::JOB_RUNNING));
  room.daemon.Put(SomeJob(6, "gone", v1::JOB_FAILED));
  v1::Job waiting = SomeJob(7, "next", v1::JOB_PENDING);
  waiting.set_queue_position(2);
  waiting.set_waits_for("waits for 8 CPUs \x1b[31m");
  room.daemon.Put(waiting);
  const Said live = room.Run("list");
  CHECK(live.code == 0);
  CHECK(Count(live.out, "running") == 5);
  CHECK(Holds(live.out, "#2: waits for 8 CPUs ?[31m"));
  CHECK_FALSE(Holds(live.out, "gone"));
  CHECK_FALSE(Holds(live.out, "\x1b"));
  CHECK(Holds(room.Run("list --all").out, "gone"));
  const auto failed = FromJson<v1::ListResponse>(room.Run("list --state failed --json").out);
  REQUIRE(failed.jobs_size() == 1);
  CHECK(failed.jobs(0).id() == 6);
  CHECK(FromJson<v1::ListResponse>(room.Run("list --json").out).jobs_size() == 6);
  CHECK(Holds(room.Run("list --owner bob").out, "no jobs"));
  const Said typo = room.Run("list --state runing");
  CHECK(typo.code == 2);
  CHECK(Holds(typo.err, "did you mean running? Expected one of pending, "));
  CHECK(Holds(room.Run("list --state bogus").err, "bogus: unknown; expected one of pending, "));
}

TEST_CASE("watch: its exit code is the job's, and it tells why") {
  Room room;
  v1::Job job = SomeJob(1, "demo", v1::JOB_RUNNING);
  job.mutable_status()->mutable_failure()->set_headline("rank 3 died (signal 9, Killed)");
  job.mutable_status()->mutable_failure()->set_evidence("rank 0 waited for rank 3");
  job.mutable_status()->mutable_failure()->set_next_action("look at dmesg on n2");
  room.daemon.Put(job);
  // A pause of the past does not end it.
  room.daemon.Enter(1, v1::JOB_PAUSED, "ada asked");
  room.daemon.Enter(1, v1::JOB_RUNNING, "back at work");
  const pid_t pid = room.Start("watch demo");
  room.Await("running: back at work");
  room.daemon.Enter(1, v1::JOB_FAILED, "5 attempts");
  const Said failed = room.End(pid);
  CHECK(failed.code == 4);
  for (const char* part : {"paused: ada asked", "rank 3 died", "rank 0 waited for rank 3",
                           "next: look at dmesg on n2", "run folder /runs/demo"}) {
    CAPTURE(part);
    CHECK(Holds(failed.out, part));
  }
  CHECK(Count(failed.out, "back at work") == 1);
  CHECK_FALSE(Holds(failed.out, "\x1b"));
  CHECK(room.Run("watch 1").code == 4);
  const std::vector<std::pair<v1::JobState, int>> ends = {
      {v1::JOB_COMPLETED, 0}, {v1::JOB_CANCELLED, 5}, {v1::JOB_PAUSED, 75}};
  for (const auto& [state, code] : ends) {
    const auto id = static_cast<uint64_t>(100 + code);
    room.daemon.Put(SomeJob(id, "", v1::JOB_RUNNING));
    room.daemon.Enter(id, v1::JOB_RUNNING, "at work");
    room.daemon.Enter(id, state, "");
    CHECK(room.Run("watch " + std::to_string(id)).code == code);
  }
  const Said json = room.Run("watch 100 --json");
  std::istringstream lines(json.out);
  std::vector<uint64_t> sequences;
  for (std::string line; std::getline(lines, line);) {
    sequences.push_back(FromJson<v1::WatchResponse>(line).event().sequence());
  }
  CHECK(sequences == std::vector<uint64_t>({4, 5}));
}

TEST_CASE("watch: a restart of the daemon is told, and nothing twice") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_PENDING));
  room.daemon.Enter(1, v1::JOB_RUNNING, "at work");
  const pid_t pid = room.Start("watch 1");
  room.Await("running: at work");
  // What comes after the history comes by the stream that the restart interrupts.
  room.daemon.Enter(1, v1::JOB_RUNNING, "on its way");
  room.Await("running: on its way");
  room.daemon.Stop();
  room.AwaitError("is away; waiting for it");
  room.daemon.Enter(1, v1::JOB_RECOVERING, "a rank died");
  room.daemon.Start();
  room.Await("recovering: a rank died");
  room.daemon.Enter(1, v1::JOB_COMPLETED, "all steps are done");
  const Said said = room.End(pid);
  CHECK(said.code == 0);
  CHECK(Count(said.out, "running: at work") == 1);
  CHECK(Count(said.out, "running: on its way") == 1);
  CHECK(Count(said.out, "recovering: a rank died") == 1);
}

TEST_CASE("watch: progress between the events, of past checkpoints only the newest") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_RUNNING));
  v1::Event event;
  event.set_job_id(1);
  for (uint64_t step = 10; step <= 300; step += 10) {
    event.mutable_checkpointed()->set_step(step);
    room.daemon.Tell(event);
  }
  room.daemon.Enter(1, v1::JOB_RUNNING, "at work");
  v1::Progress progress;
  progress.set_steps_done(301);
  progress.set_steps_total(600);
  progress.set_loss(2.5);
  progress.set_tokens_per_second(1000);
  room.daemon.Report(1, progress);
  const pid_t pid = room.Start("watch 1");
  room.Await("step 301/600 loss 2.5000");
  room.daemon.Enter(1, v1::JOB_COMPLETED, "all steps are done");
  const Said said = room.End(pid);
  // Nothing is missing above the first line.
  CHECK_FALSE(Holds(said.out, "..."));
  CHECK(Count(said.out, "checkpoint of step") == 1);
  CHECK(Holds(said.out, "checkpoint of step 300"));
  CHECK(Count(said.out, "step 301/600") == 1);
}

TEST_CASE("watch: of a long history the newest lines and how much was before them") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_RUNNING));
  v1::Event event;
  event.set_job_id(1);
  event.mutable_checkpointed()->set_step(10);
  for (int i = 0; i < 3; ++i) room.daemon.Tell(event);
  for (int i = 1; i <= 13; ++i) {
    room.daemon.Enter(1, v1::JOB_RUNNING, "news " + std::to_string(i) + ".");
  }
  room.daemon.Enter(1, v1::JOB_COMPLETED, "all steps are done");
  const std::string out = room.Run("watch 1").out;
  INFO(out);
  CHECK(out.find("job 1 (demo)\n... 5 events before these\n") == 0);
  CHECK_FALSE(Holds(out, "news 2."));
  CHECK(Holds(out, "running: news 3.\n"));
}

TEST_CASE("watch: what a job in the queue waits for, whenever that changes") {
  Room room;
  v1::Job job = SomeJob(1, "demo", v1::JOB_PENDING);
  job.set_waits_for("waits for 8 CPUs; 3 of 16 are free");
  job.set_queue_position(2);
  room.daemon.Put(job);
  const pid_t pid = room.Start("watch 1");
  room.Await("number 2 in the queue: waits for 8 CPUs; 3 of 16 are free\n");
  job.set_queue_position(1);
  room.daemon.Put(job);
  room.Await("number 1 in the queue: waits for 8 CPUs; 3 of 16 are free\n");
  kill(pid, SIGINT);
  const Said left = room.End(pid);
  CHECK(left.code == 130);
  CHECK(Count(left.out, "in the queue") == 2);
  CHECK(Holds(left.err, "job 1 (demo) stays in the queue; trireme watch 1"));
}

TEST_CASE("a long failure is told once and whole although its reason was cut") {
  Room room;
  const std::string headline = "rank 3 died: " + std::string(400, 'x') + " at its end.";
  v1::Job job = SomeJob(1, "demo", v1::JOB_FAILED);
  job.mutable_status()->mutable_failure()->set_headline(headline);
  room.daemon.Put(job);
  room.daemon.Enter(1, v1::JOB_FAILED, "1 attempt failed: " + headline.substr(0, 280) + "...");
  const std::string why = room.Run("explain 1").out;
  CHECK(Count(why, "rank 3 died") == 1);
  CHECK(Holds(why, "x at its end.\n"));
  const std::string events = room.Run("watch 1").out;
  CHECK(Count(events.substr(0, events.find("\njob 1 (demo) is")), "rank 3 died") == 1);
  CHECK_FALSE(Holds(why, "...."));
  job.mutable_status()->set_reason("3 attempts");
  room.daemon.Put(job);
  CHECK(Holds(room.Run("explain 1").out, "The last attempt failed: rank 3 died"));
}

TEST_CASE("explain: how often a job has failed, and got no further") {
  Room room;
  const auto explained = [&](uint32_t failures, uint32_t behind) {
    v1::Job job = SomeJob(1, "demo", v1::JOB_FAILED);
    job.mutable_status()->set_failures(failures);
    job.mutable_status()->set_furthest_step(90);
    job.mutable_status()->set_setbacks(behind);
    room.daemon.Put(job);
    return room.Run("explain 1").out;
  };
  CHECK(Holds(explained(5, 5), "5 attempts in a row have failed without a newer checkpoint."));
  CHECK(
      Holds(explained(1, 8),
            "8 attempts have failed and saved nothing beyond the one before, nor beyond step 90."));
  CHECK_FALSE(Holds(explained(1, 1), "in a row"));
}

TEST_CASE("show, explain: which nodes could not start a job, and how it gets them back") {
  Room room;
  v1::Job job = SomeJob(1, "demo", v1::JOB_PENDING);
  for (const char* node : {"n1", "n2"}) job.mutable_status()->add_unable_nodes(node);
  job.mutable_status()->set_attempt(2);
  job.set_waits_for(
      "waits for 4 CPUs; 0 of 4 are free; it keeps off nodes n1, n2, which could not start it");
  room.daemon.Put(job);
  CHECK(Holds(room.Run("show 1").out, "2; n1, n2 could not start it"));
  const std::string why = room.Run("explain 1").out;
  CHECK(Holds(why, "it keeps off nodes n1, n2, which could not start it."));
  CHECK(
      Holds(why, "Next: wait for the others; or mend those nodes, and say so by trireme undrain"));
}

TEST_CASE("show, explain: which step in memory is not used again") {
  Room room;
  v1::Job job = SomeJob(1, "demo", v1::JOB_RUNNING);
  job.mutable_status()->set_attempt(4);
  job.mutable_status()->set_failures(2);
  job.mutable_status()->set_furthest_memory_step(120);
  job.mutable_status()->set_memory_before(120);
  room.daemon.Put(job);
  const std::string unused = "step 120 in memory failed twice, it is not used again";
  Said show = room.Run("show 1");
  CHECK(Holds(show.out, "memory       " + unused + "\n"));
  CHECK(Holds(show.out, "4; 2 failures in a row without a newer checkpoint or step in memory"));
  CHECK(Holds(room.Run("explain 1").out, "Its " + unused + ".\n"));
  job.mutable_status()->clear_memory_before();
  job.mutable_status()->set_memory_step(119);
  room.daemon.Put(job);
  CHECK(Holds(room.Run("show 1").out, "memory       went on at step 119\n"));
  CHECK_FALSE(Holds(room.Run("explain 1").out, "not used"));
}

TEST_CASE("watch and logs: Ctrl-C leaves the job alone") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_RUNNING));
  room.daemon.Enter(1, v1::JOB_RUNNING, "at work");
  room.daemon.Append(1, 0, "step 1\n");
  const pid_t watch = room.Start("watch 1");
  room.Await("at work");
  kill(watch, SIGINT);
  const Said left = room.End(watch);
  CHECK(left.code == 130);
  CHECK(Holds(left.err, "job 1 (demo) runs on"));
  const pid_t logs = room.Start("logs 1 -f");
  room.Await("step 1");
  kill(logs, SIGINT);
  CHECK(room.End(logs).code == 130);
  for (const std::string& call : room.daemon.calls()) CHECK_FALSE(call == "Cancel");
}

// Follows `arguments` of a daemon that is gone between its first answer and the stream, which so
// begins while nobody is there; and Ctrl-C then.
void CheckAwayFromTheBegin(const std::string& arguments, const std::string& stream) {
  CAPTURE(arguments);
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_RUNNING));
  std::atomic<bool> asked = false;
  FakeFaults faults;
  faults.before = [&](const std::string& call) {
    if (call == stream) asked = true;
    return call == stream ? absl::UnavailableError("not yet") : absl::OkStatus();
  };
  room.daemon.set_faults(faults);
  const pid_t pid = room.Start(arguments);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!asked && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  REQUIRE(asked);
  room.daemon.Stop();
  room.AwaitError("the coordinator at " + room.daemon.address() + " is away; waiting for it");
  kill(pid, SIGINT);
  const Said left = room.End(pid);
  CHECK(left.code == 130);
  CHECK(Count(left.err, "is away") == 1);
  CHECK_FALSE(Holds(left.out, "is away"));
}

TEST_CASE("watch and logs: a daemon that is away from the begin is told of, with its address") {
  CheckAwayFromTheBegin("watch 1", "Watch");
  CheckAwayFromTheBegin("watch 1 --json", "Watch");
  CheckAwayFromTheBegin("logs 1 -f", "Logs");
  CheckAwayFromTheBegin("logs 1 -f --json", "Logs");
}

TEST_CASE("logs: whole, from its end on, of whom was asked, and on into the next attempt") {
  Room room;
  v1::Job job = SomeJob(1, "demo", v1::JOB_RUNNING);
  room.daemon.Put(job);
  const std::string first = "rank 0 begins\nstep 1\nstep 2\n";
  room.daemon.Append(1, 0, first);
  room.daemon.Append(1, 3, "rank 3 begins\n");
  room.daemon.Append(1, -1, "mpirun begins\n");
  CHECK(room.Run("logs demo").out == first);
  CHECK(room.Run("logs 1 --tail 7").out == "step 2\n");
  CHECK(room.Run("logs 1 --rank 3").out == "rank 3 begins\n");
  CHECK(room.Run("logs 1 --launcher").out == "mpirun begins\n");
  CHECK(room.Run("logs 1 --launcher --rank 1").code == 2);
  CHECK(FromJson<v1::LogsResponse>(room.Run("logs 1 --tail 7 --json").out).data() == "step 2\n");
  const pid_t pid = room.Start("logs 1 -f");
  room.Await("step 2\n");
  room.daemon.Append(2, 0, "again\n");
  job.mutable_status()->set_attempt(2);
  room.daemon.Put(job);
  room.Await("again\n");
  room.daemon.Append(2, 0, "the end\n");
  room.daemon.Enter(1, v1::JOB_COMPLETED, "done");
  const Said said = room.End(pid);
  CHECK(said.code == 0);
  CHECK(said.out == first + "again\nthe end\n");
  CHECK(Holds(said.err, "attempt 2"));
  job.mutable_status()->set_attempt(0);
  job.mutable_status()->set_state(v1::JOB_PENDING);
  room.daemon.Put(job);
  const Said none = room.Run("logs 1");
  CHECK(none.code == 2);
  CHECK(Holds(none.err, "has not been started yet"));
}

TEST_CASE("explain: why, and the one next action") {
  Room room;
  v1::Job job = SomeJob(1, "demo", v1::JOB_PENDING);
  job.set_waits_for("waits for 8 CPUs; 3 of 16 are free on n1");
  job.set_queue_position(1);
  room.daemon.Put(job);
  const Said pending = room.Run("explain 1");
  CHECK(Holds(pending.out, "3 of 16 are free on n1"));
  CHECK(Holds(pending.out, "the first in the queue"));
  CHECK(Count(pending.out, "Next: ") == 1);
  CHECK(Holds(pending.out, "Next: trireme nodes shows what is free"));
  job.set_waits_for("asks for 64 CPUs a rank, but no node has more than 16");
  room.daemon.Put(job);
  CHECK(Holds(room.Run("explain 1").out, "Next: add a node, or trireme cancel 1 and ask for less"));
  // What the plan takes is in no field of resources.
  job.set_waits_for("asks for 6.0 GiB of memory a rank, but no node has more than 4.0 GiB");
  room.daemon.Put(job);
  const Said planned = room.Run("explain 1");
  CHECK(Holds(planned.out,
              "or trireme cancel 1 and ask for fewer ranks; where it is memory that nodes lack"));
  CHECK_FALSE(Holds(planned.out, "less in resources"));
  job.mutable_spec()->mutable_resources()->set_memory_mib_per_rank(6144);
  room.daemon.Put(job);
  CHECK(Holds(room.Run("explain 1").out, "and ask for less in resources"));
  job.set_waits_for("too few nodes are left for it: node n1 is drained: new disk");
  room.daemon.Put(job);
  CHECK(Holds(room.Run("explain 1").out, "Next: bring a node back"));

  job = SomeJob(1, "demo", v1::JOB_LAUNCHING);
  job.mutable_progress()->set_steps_total(0);
  room.daemon.Put(job);
  CHECK_FALSE(Holds(room.Run("explain 1").out, "step"));
  CHECK_FALSE(Holds(room.Run("show 1").out, "0/0"));
  // Since long: mpirun waits for a node without an end.
  CHECK(Holds(room.Run("explain 1").out, "Next: trireme logs 1 --launcher shows what mpirun says"));
  CHECK_FALSE(Holds(room.Run("explain 1").out, "ssh"));
  for (const char* node : {"n1", "n2"}) job.add_allocation()->set_node(node);
  room.daemon.Put(job);
  CHECK(Holds(room.Run("explain 1").out, "on n1, ssh n2 true has to answer"));
  job.set_waits_for("waits in the queue of Slurm");
  room.daemon.Put(job);
  CHECK_FALSE(Holds(room.Run("explain 1").out, "ssh"));
  job.clear_waits_for();
  job.mutable_status()->set_changed_unix_ns(absl::ToUnixNanos(absl::Now()));
  room.daemon.Put(job);
  CHECK_FALSE(Holds(room.Run("explain 1").out, "ssh"));

  job = SomeJob(1, "demo", v1::JOB_RUNNING);
  job.mutable_status()->set_reason("attempt 1 is at work; step 5 was not written: full");
  room.daemon.Put(job);
  CHECK(Holds(room.Run("explain 1").out, "step 5 was not written: full."));
  CHECK(Holds(room.Run("list").out, "step 5 was not written: full"));

  job = SomeJob(1, "demo", v1::JOB_RUNNING);
  room.daemon.Put(job);
  v1::Event stalled;
  stalled.set_job_id(1);
  stalled.set_attempt(1);
  stalled.mutable_stalled()->set_rank(3);
  stalled.mutable_stalled()->set_text("rank 3 on node n2 is stopped (signal) at step 12");
  room.daemon.Tell(stalled);
  CHECK(Holds(room.Run("explain 1").out, "It is stalled: rank 3 on node n2 is stopped"));
  stalled.mutable_stalled()->set_over(true);
  room.daemon.Tell(stalled);
  CHECK_FALSE(Holds(room.Run("explain 1").out, "rank 3"));

  job.set_waits_for("waits for a report of the agent of node n2; its ranks may run on");
  room.daemon.Put(job);
  CHECK(Holds(room.Run("explain 1").out, "Next: see whether that node is up"));

  job = SomeJob(1, "demo", v1::JOB_FAILED);
  job.mutable_status()->mutable_failure()->set_headline("loss is NaN at step 7");
  job.mutable_status()->mutable_failure()->set_next_action("lower optimizer.learning_rate");
  room.daemon.Put(job);
  const Said failed = room.Run("explain 1");
  CHECK(Holds(failed.out, "loss is NaN at step 7"));
  CHECK(Holds(failed.out, "Next: lower optimizer.learning_rate\n"));
  CHECK(Holds(room.Run("show 1").out, "lower optimizer.learning_rate"));
}

TEST_CASE("cancel, pause, resume and nodes ask what they were told to") {
  Room room;
  room.daemon.Put(SomeJob(1, "demo", v1::JOB_RUNNING));
  CHECK(Holds(room.Run("pause demo").out, "job 1 (demo) is pausing"));
  CHECK(room.daemon.job(1).status().desired_state() == v1::JOB_DESIRED_PAUSE);
  CHECK(Holds(room.Run("resume 1").out, "job 1 (demo) is pending"));
  CHECK(Holds(room.Run("cancel 1 --grace 2.5").out, "to be cancelled"));
  CHECK(room.daemon.last_grace() == 2.5);
  CHECK(room.Run("cancel 1 --grace soon").code == 2);
  CHECK(FromJson<v1::Job>(room.Run("cancel 1 --json").out).id() == 1);

  v1::Node node;
  node.set_name("n1");
  node.set_state(v1::NODE_READY);
  node.set_cpus(16);
  node.set_cpus_used(3);
  room.daemon.Put(node);
  CHECK(Holds(room.Run("nodes").out, "3 / 16"));
  CHECK(Holds(room.Run("drain n1 --reason 'new disk'").out, "drained (new disk)"));
  CHECK(Holds(room.Run("nodes").out, "ready, drained"));
  node.set_drained(true);
  node.set_reason("new disk");
  node.set_drained_by("anna (unix user)");
  node.set_drained_unix_ns(1'795'687'320'000'000'000);
  room.daemon.Put(node);
  const std::string who = room.Run("nodes").out;
  CHECK(Holds(who, "drained by anna (unix user), 2026-11-2"));
  CHECK(Holds(who, ": new disk"));
  CHECK(FromJson<v1::Cluster>(room.Run("nodes --json").out).nodes(0).drained());
  CHECK(room.Run("drain n1").code == 2);
  const Said empty = room.Run("drain n1 --reason ''");
  CHECK(empty.code == 2);
  CHECK(Holds(empty.err, "--reason: it is empty"));
  CHECK_FALSE(FromJson<v1::Node>(room.Run("undrain n1 --json").out).drained());
  CHECK(room.Run("undrain n9").code == 2);

  node.set_name("n2");
  node.set_drained(false);
  node.set_refuses_for("0123456789abcdef");
  for (const char* store : {"ours", "theirs"}) {
    v1::HeldAttempt& held = *node.add_held();
    held.set_job_id(7);
    held.set_attempt(static_cast<uint32_t>(node.held_size()));
    held.set_store(store);
  }
  room.daemon.Put(node);
  const std::string shown = room.Run("nodes").out;
  CHECK(Holds(shown, "ready, refuses"));
  CHECK(Holds(shown, "trireme nodes adopt n2"));
  CHECK(Holds(shown, "runs 7.1, 7.2 of another store (01234567)"));
  CHECK(room.Run("nodes adopt").code == 2);
  CHECK(room.Run("nodes adopt n9").code == 2);
  CHECK(room.Run("nodes adopt n2").out ==
        "attempt 1 of job 7 goes on\n"
        "attempt 2 of job 7 is ended: this store knows no such attempt\n"
        "node n2 serves this daemon\n");
  CHECK(FromJson<v1::AdoptNodeResponse>(room.Run("nodes adopt n2 --json").out).node().name() ==
        "n2");

  CHECK(Holds(room.Run("checkpoints 1").out, "no checkpoints"));
  v1::CheckpointInfo checkpoint;
  checkpoint.set_step(600);
  checkpoint.set_path("/runs/demo/checkpoints/step-00000600");
  room.daemon.AddCheckpoint(checkpoint);
  const Said whole = room.Run("checkpoints demo");
  CHECK(Holds(whole.out, "step-00000600"));
  CHECK(whole.err.empty());
  FakeFaults faults;
  faults.newest_damaged = true;
  room.daemon.set_faults(faults);
  const Said damaged = room.Run("checkpoints demo");
  CHECK(Holds(damaged.out, "step-00000600"));
  CHECK(Holds(damaged.err, "warning: does not open: /step-700: cut short"));
}

}  // namespace
}  // namespace trireme::cli
