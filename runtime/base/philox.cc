#include "runtime/base/philox.h"

#include <cmath>

namespace trireme::base {

// Box and Muller 1958: r cos and r sin of one pair of uniforms are two independent normals.
double RandomSite::Normal(uint64_t index) const {
  const uint64_t pair = index / 2;
  const double u1 = 1.0 - Uniform(2 * pair);  // in (0, 1], so the logarithm is finite
  const double u2 = Uniform(2 * pair + 1);
  const double radius = std::sqrt(-2.0 * std::log(u1));
  const double angle = 6.283185307179586476925286766559 * u2;
  return index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
}

}  // namespace trireme::base
