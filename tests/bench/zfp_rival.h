// zfp's fixed accuracy beside our codec, where libzfp is installed: zfp_rival.cc or zfp_absent.cc.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trireme::compress {

struct ZfpResult {
  size_t bytes = 0;  // 0: no zfp here, or it does not know the type
  double compress_seconds = 0;
  double decompress_seconds = 0;
};

ZfpResult RunZfp(const std::string& type, const std::vector<std::byte>& values, double bound);

}  // namespace trireme::compress
