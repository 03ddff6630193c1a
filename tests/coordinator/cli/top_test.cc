// `trireme top` from outside: one picture into a file, a live one on a terminal.
#include <nlohmann/json.hpp>

#include "tests/coordinator/cli/terminal.h"

namespace trireme::cli {
namespace {

const std::vector<std::string> kTop = {"top", "--delay", "0.1"};

// Two nodes, one of them lost; a job that runs, one that waits.
void Fill(FakeControl& daemon) {
  v1::Node node;
  node.set_name("n1");
  node.set_state(v1::NODE_READY);
  node.set_cpus(16);
  node.set_cpus_used(4);
  node.set_memory_bytes(uint64_t{64} << 30);
  daemon.Put(node);
  node.set_name("n2");
  node.set_state(v1::NODE_LOST);
  node.set_last_report_unix_ns(1);
  daemon.Put(node);
  v1::Job job = SomeJob(1, "demo", v1::JOB_RUNNING);
  job.mutable_spec()->mutable_training()->set_global_batch_size(8);
  job.mutable_spec()->mutable_data()->set_sequence_length(16);
  job.mutable_progress()->set_steps_done(100);
  job.mutable_progress()->set_steps_total(1100);
  job.mutable_progress()->set_loss(2.5);
  job.mutable_progress()->set_tokens_per_second(1280);
  job.mutable_progress()->set_overall_tokens_per_second(640);
  daemon.Put(job);
  v1::Job waiting = SomeJob(2, "later", v1::JOB_PENDING);
  waiting.set_queue_position(1);
  waiting.set_waits_for("waits for 16 CPUs; 12 of 16 are free on n1");
  daemon.Put(waiting);
}

TEST_CASE("top: where there is no terminal one picture of nodes and jobs") {
  Room room;
  Fill(room.daemon);
  const Said said = room.Run("top");
  CHECK(said.code == 0);
  CHECK_FALSE(Holds(said.out, "\x1b"));
  // 1000 steps of 128 tokens at 1280 a second of steps, 640 of all the time: as it was, so it will
  // be.
  for (const char* part : {"4 / 16", "64.0 GiB", "lost", "last report", "100/1100", "2.5000",
                           "1.28k", "3m20s", "#1: waits for 16 CPUs; 12 of 16 are free on n1"}) {
    CAPTURE(part);
    CHECK(Holds(said.out, part));
  }
  const auto json = nlohmann::json::parse(room.Run("top --json").out, nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json["cluster"]["nodes"].size() == 2);
  CHECK(json["list"]["jobs"].size() == 2);
  room.daemon.Stop();
  CHECK(room.Run("top").code == 69);
}

TEST_CASE("top: live on a terminal and within its size and the terminal as before at the end") {
  Room room;
  Fill(room.daemon);
  Terminal terminal(room, kTop, {30, 160, 0, 0});
  terminal.Await("12 of 16 are free");
  CHECK_FALSE(terminal.Echoes());
  v1::Job job = room.daemon.job(1);
  job.mutable_progress()->set_steps_done(777);
  room.daemon.Put(job);
  terminal.Await("777/1100");
  // A job that ends is shown with its end.
  room.daemon.Enter(1, v1::JOB_COMPLETED, "all steps are done");
  terminal.Await("all steps are done");
  terminal.Resize({6, 40, 0, 0});
  const std::string narrow = terminal.Await("... and");
  const std::string frame = narrow.substr(narrow.rfind("\x1b[H"));
  CHECK(Count(frame, "\n") <= 5);
  room.daemon.Stop();
  terminal.Await("has been away");
  room.daemon.Start();
  terminal.Type("xq");
  CHECK(terminal.End() == 0);
  CHECK(terminal.Echoes());
}

TEST_CASE("tables: a long name hides its end and not what stands behind it") {
  Room room;
  Fill(room.daemon);
  v1::Job job = room.daemon.job(1);
  const std::string name(64, 'n'), node_name(100, 'm'), cut = std::string(13, 'n') + "...";
  job.set_name(name);
  room.daemon.Put(job);
  v1::Node node;
  node.set_name(node_name);
  node.set_state(v1::NODE_READY);
  node.set_cpus(8);
  room.daemon.Put(node);
  const auto shown = [&](std::vector<std::string> arguments, unsigned short columns) {
    Terminal terminal(room, arguments, {30, columns, 0, 0});
    std::string text;
    CHECK(terminal.End(&text) == 0);
    return text;
  };
  const std::string narrow = shown({"top", "--once"}, 60);
  INFO(narrow);
  CHECK(Holds(narrow, "  " + cut + "  ada"));
  CHECK(Holds(narrow, "100/1100"));
  CHECK(Holds(narrow, std::string(13, 'm') + "...  "));
  CHECK(Holds(narrow, "0 / 8"));
  CHECK(Holds(shown({"top", "--once"}, 100), "3m20s"));
  CHECK(Holds(shown({"top", "--once"}, 300), "  " + name + "  ada"));
  CHECK(Holds(shown({"list"}, 80), "  " + cut + "  ada"));
  CHECK(Holds(shown({"list"}, 80), "#1: waits for"));
  CHECK(Holds(shown({"nodes"}, 80), std::string(13, 'm') + "...  "));
  job.set_owner(name);
  room.daemon.Put(job);
  CHECK(Holds(shown({"list"}, 80), "  " + cut + "  " + cut + "  "));
  // What goes to a file is whole.
  CHECK(Holds(room.Run("list").out, "  " + name + "  " + name + "  "));
}

TEST_CASE("top: a name that is not drawn takes no room") {
  Room room;
  Fill(room.daemon);
  for (uint64_t id = 3; id <= 5; ++id) {
    v1::Job waiting = SomeJob(id, id == 5 ? std::string(64, 'n') : "more", v1::JOB_PENDING);
    waiting.set_queue_position(static_cast<uint32_t>(id));
    room.daemon.Put(waiting);
  }
  Terminal terminal(room, kTop, {8, 100, 0, 0});
  const std::string text = terminal.Await("... and 3 jobs");
  CHECK(Holds(text, "... and 2 nodes"));
  CHECK(Holds(text, "  demo   ada    "));
}

TEST_CASE("top: Ctrl-C ends it in order") {
  Room room;
  Fill(room.daemon);
  Terminal terminal(room, kTop, {30, 160, 0, 0});
  terminal.Await("12 of 16 are free");
  terminal.Type("\x03");
  CHECK(terminal.End() == 0);
  CHECK(terminal.Echoes());
}

}  // namespace
}  // namespace trireme::cli
