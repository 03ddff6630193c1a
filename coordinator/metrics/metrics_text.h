// The text format of Prometheus, version 0.0.4.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme::coordinator {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class MetricsText {
 public:
  // Begins a metric; its samples follow. `type`: counter, gauge or histogram.
  void Begin(const std::string& name, const std::string& type, const std::string& help);
  void Sample(const MetricLabels& labels, double value) { Sample("", labels, value); }
  // Of a histogram: suffix _bucket, _sum or _count.
  void Sample(const std::string& suffix, const MetricLabels& labels, double value);
  // A metric without labels.
  void One(const std::string& name, const std::string& type, const std::string& help,
           double value) {
    Begin(name, type, help);
    Sample({}, value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string name_;
  std::string text_;
};

// Shortest text that reads back as `value`; NaN, +Inf and -Inf as Prometheus writes them.
std::string MetricNumber(double value);

}  // namespace trireme::coordinator
