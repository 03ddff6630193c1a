// A text file that lives as long as the test.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/data/dataset.h"

namespace trireme::data {

class TextFile {
 public:
  explicit TextFile(std::string_view text) {
    char path[] = "/tmp/trireme_data_XXXXXX";
    const int fd = mkstemp(path);
    TRIREME_CHECK(fd >= 0);
    close(fd);
    path_ = path;
    std::ofstream(path_, std::ios::binary) << text;
  }
  TextFile(const TextFile&) = delete;
  ~TextFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

  DatasetOptions Options(int64_t sequence_length, double validation_fraction = 0.1) const {
    DatasetOptions options;
    options.text_files = {path_};
    options.sequence_length = sequence_length;
    options.validation_fraction = validation_fraction;
    return options;
  }

 private:
  std::string path_;
};

}  // namespace trireme::data
