// Names of groups.
#include "runtime/engine/step_trace.h"

namespace trireme::engine {

std::string_view TextOf(GroupName name) {
  switch (name) {
    case GroupName::kWorld:
      return "world";
    case GroupName::kTensor:
      return "tensor";
    case GroupName::kData:
      return "data";
    case GroupName::kPipeline:
      return "pipeline";
    case GroupName::kTied:
      return "tied";
  }
  return "?";
}

}  // namespace trireme::engine
