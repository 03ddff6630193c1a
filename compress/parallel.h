// Pieces shared out among threads that live for one call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

namespace trireme::compress {

// Calls work(piece, thread) once for each piece below `pieces`, in contiguous runs, one run for
// each of at most `threads` threads; the caller's is thread 0.
template <typename Work>
void ForEachPiece(size_t pieces, int threads, Work work) {
  const size_t runs = std::min(pieces, static_cast<size_t>(std::max(threads, 1)));
  const auto run = [&](size_t thread) {
    for (size_t piece = pieces * thread / runs; piece < pieces * (thread + 1) / runs; ++piece) {
      work(piece, thread);
    }
  };
  if (runs == 0) return;
  std::vector<std::thread> others;
  for (size_t thread = 1; thread < runs; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
}

}  // namespace trireme::compress
