// Label values are escaped; names are ours.
#include "coordinator/metrics/metrics_text.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace trireme::coordinator {
namespace {

std::string Escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string MetricNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

void MetricsText::Begin(const std::string& name, const std::string& type, const std::string& help) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::Sample(const std::string& suffix, const MetricLabels& labels, double value) {
  text_ += name_ + suffix;
  char before = '{';
  for (const auto& [label, of] : labels) {
    text_ += fmt::format("{}{}=\"{}\"", before, label, Escaped(of));
    before = ',';
  }
  if (before == ',') text_ += '}';
  text_ += ' ' + MetricNumber(value) + '\n';
}

}  // namespace trireme::coordinator
