// Numbers that many threads add to: counters and histograms, by the values of their labels.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/metrics/metrics_text.h"

namespace trireme::coordinator {

// Of which instruments write themselves out.
struct MetricName {
  std::string name;
  std::string help;
  std::vector<std::string> labels;  // names; values are given in this order
};

// At most so many combinations of label values; what is beyond counts as "other" in each label.
constexpr size_t kMostLabelSets = 200;

using LabelValues = std::vector<std::string>;

// Counter, or a gauge where it also goes down. Threads: any.
class CounterFamily {
 public:
  explicit CounterFamily(MetricName name) : name_(std::move(name)) {}
  void Add(const LabelValues& values, double amount = 1);
  void Write(MetricsText& text, const std::string& type = "counter") const;

 private:
  const MetricName name_;
  mutable absl::Mutex mutex_;
  std::map<LabelValues, double> sums_ ABSL_GUARDED_BY(mutex_);
};

// Durations, from 1 ms to 10 s. Threads: any.
class HistogramFamily {
 public:
  explicit HistogramFamily(MetricName name) : name_(std::move(name)) {}
  void Observe(const LabelValues& values, double seconds);
  void Write(MetricsText& text) const;

 private:
  static constexpr std::array<double, 13> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10};
  struct Counts {
    std::array<uint64_t, kBounds.size() + 1> in;  // the last: above all bounds
    double sum;
  };
  const MetricName name_;
  mutable absl::Mutex mutex_;
  std::map<LabelValues, Counts> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
