// A copy of more bytes than caches hold. An ordinary store first fetches the line it writes to, a
// third more traffic; these stores write whole lines past the caches.
#pragma once

#include <cstddef>

namespace trireme::comm {

// From here on what is written would not stay in the caches anyway.
inline constexpr size_t kStreamCopyBytes = size_t{4} << 20;

// As memcpy; other threads see the bytes once they see what this one stores afterwards.
void StreamCopy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace trireme::comm
