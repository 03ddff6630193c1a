#include "runtime/graph/graph.h"

namespace trireme::graph {

layout::Box Parameter::LocalBox(int64_t tensor_size, int64_t tensor_index) const {
  layout::Box box = layout::Box::Whole(shape);
  if (shard_dim != kNone) {
    box.dims[shard_dim] = layout::SplitEvenly(shape[shard_dim], tensor_size, tensor_index);
  }
  return box;
}

int64_t ModelGraph::ParameterCount() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters) {
    count += layout::Box::Whole(parameter.shape).elements();
  }
  return count;
}

}  // namespace trireme::graph
