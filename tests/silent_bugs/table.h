// The rows of docs/silent_bugs.md as the bench measures them, and what of the page is not so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/silent_bugs/curve.h"
#include "tests/silent_bugs/look.h"

namespace trireme::silent_bugs {

struct Row {
  int number = 0;
  bool planted = false;
  bool seen = false;        // by somebody, and as it should be
  bool by_product = false;  // seen by the product itself
  // Its healthy twin raised an alarm; empty: nobody has looked at it.
  std::optional<bool> false_alarm;
  // Without the loss: what any measurement gives again, to the letter.
  std::string text;
  std::optional<Curve> curve;

  std::string Line() const;
};

Row RowOf(const Kind& kind, const Looked& looked);
// Of the kinds, their twins and the losses, as far as they were looked at.
std::string Summary(const std::vector<Row>& rows);

// What the page at `path` says otherwise; of losses whether they show it, not how far apart they
// are, and only where they are measured. Empty: nothing.
std::string DifferencesOf(const std::string& path, const std::vector<Row>& rows);
// Puts the rows, and the summary, in the place of those of the page.
absl::Status Rewrite(const std::string& path, const std::vector<Row>& rows);

}  // namespace trireme::silent_bugs
