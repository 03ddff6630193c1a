// A rank without MPI: keeps a flight recorder, is at work at step 3 until RUN/end is there (exit
// code 0) or USR1 comes (75), two minutes at most.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/recorder/flight_recorder.h"
#include "trireme/v1/plan.pb.h"

namespace {

volatile std::sig_atomic_t stop = 0;

std::string Argument(int argc, char** argv, const char* name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return "";
}

int Number(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  using trireme::recorder::RankState;
  std::signal(SIGUSR1, [](int) { stop = 1; });
  const int rank = Number("OMPI_COMM_WORLD_RANK", 0);
  const int ranks = Number("OMPI_COMM_WORLD_SIZE", 1);
  char name[32];
  std::snprintf(name, sizeof name, "/rank-%03d.rec", rank);
  const auto recorder = trireme::recorder::FlightRecorder::Create(
      Argument(argc, argv, "--recorder-dir") + name, rank, ranks);
  if (!recorder.ok()) return 2;
  (*recorder)->SetState(RankState::kRunning);
  (*recorder)->At({3, 7, trireme::v1::F, 0, 2, ranks - 1 - rank});
  (*recorder)->Report({2, 10, 1.5, 100.0, 0.25, 0, 0});
  const std::string end = Argument(argc, argv, "--run-dir") + "/end";
  for (int i = 0; i < 12000; ++i) {
    usleep(10000);
    if (stop == 0 && access(end.c_str(), F_OK) != 0) continue;
    (*recorder)->SetState(RankState::kStopped);
    // As the worker does: one rank brings the news.
    return stop != 0 && rank == 0 ? 75 : 0;
  }
  return 1;
}
