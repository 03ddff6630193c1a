// Programs that fail, hang, flood and leave children behind.
#include "coordinator/process/command.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <string>

#include "coordinator/process/shell_quote.h"

namespace trireme::process {
namespace {

Command Shell(const std::string& script, int deadline_ms = 60000) {
  Command command;
  command.argv = {"sh", "-c", script};
  command.deadline = std::chrono::milliseconds(deadline_ms);
  return command;
}

TEST_CASE("output and exit code of a command") {
  Command command = Shell("cat; echo \"$WORD\"; echo no >&2; exit 3");
  command.environment = {"WORD=oars"};
  const auto result = RunCommand(command);
  REQUIRE(result.ok());
  CHECK(result->exit_code == 3);
  CHECK(result->output == "oars\n");  // and nothing of our own input
  CHECK(result->errors == "no\n");
  const auto killed = RunCommand(Shell("kill -9 $$"));
  REQUIRE(killed.ok());
  CHECK(killed->exit_code == 137);
}

TEST_CASE("what a failing command said is quoted") {
  CHECK(OutputOf(Shell("echo fine")).value() == "fine\n");
  const auto failed = OutputOf(Shell("printf '\\n\\033[31mno such\\tqueue\\nmore' >&2; exit 1"));
  CHECK(failed.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(failed.status().message() == "sh: exit code 1: [31mno suchqueue");
}

// Daemons ignore SIGPIPE, and a program that inherits that runs on after its reader has gone.
TEST_CASE("a command ends by the signals that its caller ignores or blocks") {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  sigset_t usr1, mask;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, &mask);
  const auto piped = RunCommand(Shell("kill -PIPE $$; echo went on"));
  const auto used = RunCommand(Shell("kill -USR1 $$; echo went on"));
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  std::signal(SIGPIPE, before);
  REQUIRE((piped.ok() && used.ok()));
  CHECK((piped->exit_code == 128 + SIGPIPE && piped->output.empty()));
  CHECK((used->exit_code == 128 + SIGUSR1 && used->output.empty()));
}

TEST_CASE("a missing program is named") {
  Command command;
  command.argv = {"trireme-no-such-program"};
  CHECK(RunCommand(command).status().message() == "trireme-no-such-program is not in PATH");
  command.argv = {"/nowhere/squeue"};
  CHECK(absl::IsNotFound(RunCommand(command).status()));
  CHECK_FALSE(RunCommand(Command()).ok());
  CHECK(FindProgram("sh") != "");
}

TEST_CASE("a command that hangs is killed with its children") {
  const auto result = RunCommand(Shell("sleep 1000 & sleep 1000", 200));
  CHECK(absl::IsDeadlineExceeded(result.status()));
  CHECK(result.status().message() == "sh has not ended within 0.2 s");
}

TEST_CASE("a flood ends at the limit") {
  Command command = Shell("while :; do echo oars; done");
  command.most_output_bytes = 10000;
  CHECK(absl::IsResourceExhausted(RunCommand(command).status()));
  command = Shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2");
  const auto result = RunCommand(command);
  REQUIRE(result.ok());
  CHECK(result->output.size() == 300000);
  CHECK(result->errors.size() == 300000);
}

TEST_CASE("a child in the background keeps nobody waiting") {
  const auto result = RunCommand(Shell("sleep 120 & echo $!"));
  REQUIRE(result.ok());
  RunCommand(Shell("kill " + result->output)).IgnoreError();
  CHECK_FALSE(result->output.empty());
}

TEST_CASE("a quoted word reaches a shell as it is") {
  for (const std::string word :
       {"plain", "", "it's", "$(touch /tmp/x) `y` \\ \" ; & | > *", "a\nb", "~root", "-n", "a=b"}) {
    const auto result = RunCommand(Shell("printf '%s' " + ShellQuote(word)));
    REQUIRE(result.ok());
    CHECK(result->output == word);
  }
}

}  // namespace
}  // namespace trireme::process
