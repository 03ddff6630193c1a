// Options of a program from a file: what CLI11 reads of `key = value`, but strict, since an option
// that is misspelt or lost would be found out years later. The form is the part of TOML without
// sections: keys are options without their dashes; strings, numbers, true, false and arrays.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

namespace trireme::coordinator {

// Of one program. Options of the command line win over the file's.
class ConfigFile {
 public:
  // Adds `--config FILE` to `app`, which outlives this; `-FILE` is a file that may be absent. What
  // is wrong in the file is thrown by app.parse as CLI::ConfigError, all at once, with file, line
  // and fix; a bad value as CLI11's own error of its option.
  explicit ConfigFile(CLI::App& app);

  // The text of the error, with file and line where it is of a value from the file.
  std::string Explain(const CLI::Error& error) const;

 private:
  struct Origin {
    std::string file;
    std::map<std::string, int> lines;  // of the keys that the file alone gives
  };
  class Reader;

  std::shared_ptr<Origin> origin_ = std::make_shared<Origin>();
};

}  // namespace trireme::coordinator
