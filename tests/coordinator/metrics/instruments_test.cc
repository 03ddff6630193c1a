// What many threads add to counters and histograms is all there.
#include "coordinator/metrics/instruments.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

namespace trireme::coordinator {

TEST_CASE("metrics: counts of many threads are whole while a page is read") {
  CounterFamily calls({"calls_total", "Calls.", {"code"}});
  HistogramFamily times({"call_seconds", "Their time.", {"code"}});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, code = i % 2 == 0 ? "OK" : "NOT_FOUND"] {
      for (int call = 0; call < 500; ++call) {
        calls.Add({code});
        times.Observe({code}, 0.002);
      }
    });
  }
  const auto page = [&] {
    MetricsText text;
    calls.Write(text);
    times.Write(text);
    return text.text();
  };
  for (int look = 0; look < 20; ++look) CHECK_FALSE(page().empty());
  for (std::thread& thread : threads) thread.join();
  const std::string last = page();
  for (const char* line :
       {"calls_total{code=\"OK\"} 1000\n", "calls_total{code=\"NOT_FOUND\"} 1000\n",
        "call_seconds_count{code=\"OK\"} 1000\n",
        "call_seconds_count{code=\"NOT_FOUND\"} 1000\n"}) {
    CAPTURE(line);
    CHECK(last.find(line) != std::string::npos);
  }
}

}  // namespace trireme::coordinator
