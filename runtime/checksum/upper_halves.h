// The state of vector registers that a library may leave behind.
#pragma once

namespace trireme::checksum {

// For after code that leaves the upper halves of vector registers in use, as ISA-L's checksum does:
// all SSE code that follows on the thread would be four to ten times slower.
void ClearUpperHalves();

}  // namespace trireme::checksum
