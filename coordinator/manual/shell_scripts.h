// The few lines with which a shell asks a program for completions.
#pragma once

#include <string>

namespace trireme::manual {

// `shell`: bash, zsh or fish, else empty. The script runs `PROGRAM COMPLETER WORD...` at each Tab
// and reads what ForShell gives.
struct Completer {
  std::string program;
  std::string subcommand;
};
std::string ScriptFor(const std::string& shell, const Completer& completer);

}  // namespace trireme::manual
