#include "coordinator/manual/shell_scripts.h"

namespace trireme::manual {
namespace {

// @P: the program, @C: its completer, @F: a name for functions.
constexpr const char* kBash =
    R"sh(# bash completion of @P. For one session: source <(@P completion bash)
# For good: @P completion bash >~/.local/share/bash-completion/completions/@P
_@F_complete() {
  local IFS=$'\n' lines line word kept="" current=${COMP_WORDS[COMP_CWORD]}
  mapfile -t lines < <("${COMP_WORDS[0]/#\~/$HOME}" @C "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=()
  for line in "${lines[@]:1}"; do
    word=${line%%$'\t'*}
    # What stands before a character at which bash takes words apart is there already.
    if [[ $COMP_WORDBREAKS == *=* && $word == --*=* ]]; then word=${word#*=}; fi
    COMPREPLY+=("$word")
  done
  if [[ $current == = ]]; then
    current=""
  elif [[ $current == --*=* ]]; then
    kept=${current%%=*}=
    current=${current#*=}
  fi
  case ${lines[0]} in
    files) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -P "$kept" -f -- "$current") ;;
    folders) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -P "$kept" -d -- "$current") ;;
    *) return ;;
  esac
  compopt -o filenames 2>/dev/null
}
complete -F _@F_complete @P
)sh";

constexpr const char* kZsh = R"sh(#compdef @P
# zsh completion of @P. For one session: source <(@P completion zsh)
# For good: @P completion zsh >FOLDER/_@P, for a FOLDER of $fpath
_@F_complete() {
  local -a lines candidates
  local line word
  lines=("${(@f)$("${words[1]}" @C "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  for line in "${(@)lines[2,-1]}"; do
    word=${line%%$'\t'*}
    candidates+=("${word//:/\\:}:${line#*$'\t'}")
  done
  (( $#candidates )) && _describe -V '@P' candidates
  case ${lines[1]} in
    files) compset -P '--*='; _files ;;
    folders) compset -P '--*='; _files -/ ;;
  esac
}
if [[ ${funcstack[1]} == _@P ]]; then
  _@F_complete "$@"
else
  compdef _@F_complete @P
fi
)sh";

constexpr const char* kFish =
    R"sh(# fish completion of @P. For one session: @P completion fish | source
# For good: @P completion fish >~/.config/fish/completions/@P.fish
function __@F_complete
    set -l words (commandline -opc)
    set -l token "$(commandline -ct)"
    set -l lines ($words[1] @C $words[2..-1] $token 2>/dev/null)
    for line in $lines[2..-1]
        echo $line
    end
    set -l value (string replace -r -- '^--[^=]*=' '' $token)
    set -l kept (string match -r -- '^--[^=]*=' $token)
    switch "$lines[1]"
        case files
            __fish_complete_path $value | string replace -r -- '^' "$kept"
        case folders
            __fish_complete_directories $value | string replace -r -- '^' "$kept"
    end
end
complete -c @P -f -a '(__@F_complete)'
)sh";

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace

std::string ScriptFor(const std::string& shell, const Completer& completer) {
  const char* script = shell == "bash"   ? kBash
                       : shell == "zsh"  ? kZsh
                       : shell == "fish" ? kFish
                                         : "";
  std::string text = Replace(script, "@P", completer.program);
  text = Replace(text, "@C", completer.subcommand);
  return Replace(text, "@F", Replace(completer.program, "-", "_"));
}

}  // namespace trireme::manual
