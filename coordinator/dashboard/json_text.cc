#include "coordinator/dashboard/json_text.h"

#include "runtime/json/json_text.h"

namespace trireme::dashboard {

std::string JsonText(const Json& json) { return json_text::Write(json); }

}  // namespace trireme::dashboard
