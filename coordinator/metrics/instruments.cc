// Sums under a mutex: some thousand additions a second at most.
#include "coordinator/metrics/instruments.h"

#include <algorithm>

namespace trireme::coordinator {
namespace {

// The entry of these values, or that of the others where there are too many.
template <typename Value>
Value& EntryOf(std::map<LabelValues, Value>& entries, const LabelValues& values) {
  const auto found = entries.find(values);
  if (found != entries.end()) return found->second;
  if (entries.size() < kMostLabelSets) return entries[values];
  return entries[LabelValues(values.size(), "other")];
}

MetricLabels LabelsOf(const MetricName& name, const LabelValues& values) {
  MetricLabels labels;
  for (size_t i = 0; i < name.labels.size() && i < values.size(); ++i) {
    labels.emplace_back(name.labels[i], values[i]);
  }
  return labels;
}

}  // namespace

void CounterFamily::Add(const LabelValues& values, double amount) {
  const absl::MutexLock lock(&mutex_);
  EntryOf(sums_, values) += amount;
}

void CounterFamily::Write(MetricsText& text, const std::string& type) const {
  const absl::MutexLock lock(&mutex_);
  text.Begin(name_.name, type, name_.help);
  for (const auto& [values, sum] : sums_) text.Sample(LabelsOf(name_, values), sum);
}

void HistogramFamily::Observe(const LabelValues& values, double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  const absl::MutexLock lock(&mutex_);
  Counts& counts = EntryOf(counts_, values);
  ++counts.in[static_cast<size_t>(bound - kBounds.begin())];
  counts.sum += seconds;
}

void HistogramFamily::Write(MetricsText& text) const {
  const absl::MutexLock lock(&mutex_);
  text.Begin(name_.name, "histogram", name_.help);
  for (const auto& [values, counts] : counts_) {
    uint64_t so_far = 0;
    for (size_t i = 0; i <= kBounds.size(); ++i) {
      so_far += counts.in[i];
      MetricLabels labels = LabelsOf(name_, values);
      labels.emplace_back("le", i < kBounds.size() ? MetricNumber(kBounds[i]) : "+Inf");
      text.Sample("_bucket", labels, static_cast<double>(so_far));
    }
    text.Sample("_sum", LabelsOf(name_, values), counts.sum);
    text.Sample("_count", LabelsOf(name_, values), static_cast<double>(so_far));
  }
}

}  // namespace trireme::coordinator
