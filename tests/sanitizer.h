// What a test leaves out under a sanitizer.
#pragma once

namespace trireme::tests {

// Whether this program runs under ThreadSanitizer, or under any. Work that repeats the same paths
// on more data or more layouts is cut there: it shows no more races, nor other accesses, and takes
// minutes.
inline constexpr bool kThreadSanitizer = TRIREME_THREAD_SANITIZER;
inline constexpr bool kSanitizer = TRIREME_SANITIZER;

// Of `all` random cases, those that are tried: an eighth under a sanitizer.
constexpr int Tries(int all) { return kSanitizer ? all / 8 : all; }

}  // namespace trireme::tests
