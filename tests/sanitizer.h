// What a test leaves out under a sanitizer.
#pragma once

namespace trireme::tests {

// Whether this program runs under ThreadSanitizer. Work that repeats the same paths of threads on
// more data or more layouts is cut there: it shows no more races, and takes minutes.
inline constexpr bool kThreadSanitizer = TRIREME_THREAD_SANITIZER;

}  // namespace trireme::tests
