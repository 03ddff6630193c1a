// The one translation unit that holds Catch2's main. Exit code 77: nothing failed, and a test case
// was skipped. A filter that no case matches is a failure: ctest names the cases one by one, and a
// name that is lost on the way there would pass for ever.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <iostream>
#include <string>

#include "tests/skip.h"
#include "tests/streams.h"

namespace {

constexpr int kSkipped = 77;
bool any_skipped = false;

}  // namespace

void trireme::tests::NoteSkip(std::string_view reason) {
  any_skipped = true;
  std::cout << "skipped: " << reason << std::endl;
}

int main(int argc, char** argv) {
  Catch::Session session;
  std::string streams;
  session.cli(session.cli() |
              Catch::clara::Opt(streams, "asynchronous")["--streams"]("streams of all devices"));
  if (session.applyCommandLine(argc, argv) != 0) return 1;
  if (!streams.empty() && streams != "asynchronous") {
    std::cerr << "--streams " << streams << ": expected asynchronous" << std::endl;
    return 1;
  }
  trireme::tests::asynchronous_streams = !streams.empty();
  session.configData().warnings = static_cast<Catch::WarnAbout::What>(
      session.configData().warnings | Catch::WarnAbout::NoTests);
  // Catch2 returns how many have failed, and 77 of them are no skip.
  if (session.run() != 0) return 1;
  return any_skipped ? kSkipped : 0;
}
