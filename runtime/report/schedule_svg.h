// The schedule of a plan as an SVG picture, alone in a file or inside an HTML page.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::report {

// A row per pipeline rank, time to the right, cells with micro-batch numbers; lighter cells are
// later virtual stages. More than 16 ranks or long steps are drawn with their middle left out and
// marked. Elements carry the classes tr-paper, tr-ink, tr-faint and tr-grid, by which a page can
// change the colours for a dark theme. FailedPrecondition if the plan's compute order cannot run.
absl::StatusOr<std::string> ScheduleSvg(const v1::Plan& plan);

// `text` with &, <, > and quotes escaped for XML and HTML.
std::string EscapeXml(const std::string& text);

}  // namespace trireme::report
