#include "coordinator/dashboard/json_text.h"

namespace trireme::dashboard {

std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trireme::dashboard
