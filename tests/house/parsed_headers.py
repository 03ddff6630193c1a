"""Headers of others and generated ones, parsed once for all files that reach them: a file then costs its own lines, not those of absl, Catch2 and
protobuf. A file only gets headers parsed that it includes itself, by way of our own headers too, so nothing that it lacks is
lent to it. A source that includes its own header first shows that the header stands by itself, so it gets no more than that
header reaches; where it reaches what costs much more, the header is read by itself and the source with all that it reaches."""
import collections
import os
import re
import subprocess

# Seconds of g++ 12 for each of the headers that cost most; clang takes half of each.
COSTS = {
    'CLI/CLI.hpp': 1.9, 'absl/status/statusor.h': 0.9, 'absl/strings/str_cat.h': 0.2, 'absl/strings/str_format.h': 0.3,
    'catch2/catch.hpp': 0.7, 'condition_variable': 0.1, 'filesystem': 0.3, 'fmt/format.h': 0.3,
    'google/protobuf/extension_set.h': 0.1, 'google/protobuf/generated_message_reflection.h': 0.5,
    'google/protobuf/generated_message_util.h': 0.1, 'google/protobuf/message.h': 0.2, 'grpcpp/grpcpp.h': 1.0,
    'nlohmann/json.hpp': 1.2, 'random': 0.2, 'spdlog/spdlog.h': 1.5, 'trireme/v1/agent.grpc.pb.h': 0.5,
    'trireme/v1/control.grpc.pb.h': 1.2, 'trireme/v1/control.pb.h': 0.2, 'trireme/v1/dashboard.pb.h': 0.2,
    'trireme/v1/event.pb.h': 0.1, 'trireme/v1/job.pb.h': 0.1, 'trireme/v1/job_spec.pb.h': 0.1, 'trireme/v1/plan.pb.h': 0.1,
    'trireme/v1/worker.grpc.pb.h': 0.5, 'yaml-cpp/yaml.h': 0.4}
WRITING = 2.0  # a precompiled header takes this many times as long as reading what is in it
READING_A_HEADER = 0.3  # seconds more for a header that is read by itself
GENERATED = '.pb.h'
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


class Includes:
    """What files reach by their include lines."""

    def __init__(self, folders):
        self._folders = folders  # those of -I that are ours
        self._named = {}

    def ours(self, path, name):
        """The path of one of our own files that `path` includes as `name`, or None."""
        for folder in (os.path.dirname(path), *self._folders):
            found = os.path.normpath(os.path.join(folder, name))
            if os.path.isfile(found):
                return found
        return None

    def named(self, path):
        """The names in the include lines of a file."""
        if path not in self._named:
            with open(path, encoding='utf-8', errors='replace') as file:
                self._named[path] = INCLUDE.findall(file.read())
        return self._named[path]

    def _defines_first(self, path):
        with open(path, encoding='utf-8', errors='replace') as file:
            text = file.read()
        defined = re.search(r'^\s*#\s*define\b', text, re.M)
        return defined is not None and INCLUDE.search(text, defined.end()) is not None

    def own_header(self, path):
        """The header of its name that a source file includes first, or None."""
        first = self.named(path)[:1]
        own = self.ours(path, first[0]) if first else None
        stem = os.path.splitext(os.path.basename(path))[0]
        return own if own and os.path.splitext(os.path.basename(own))[0] == stem else None

    def foreign(self, path):
        """The headers of others that a file reaches, and so may be parsed before its own lines are read: none where it defines
        something for them first."""
        if self._defines_first(path):
            return set()
        open_paths = [path]
        seen, found = set(open_paths), set()
        while open_paths:
            at = open_paths.pop()
            for name in self.named(at):
                ours = self.ours(at, name)
                if ours is None or ours.endswith(GENERATED):
                    found.add(name)
                if ours is not None and ours not in seen:
                    seen.add(ours)
                    open_paths.append(ours)
        return found


def cost(names):
    return sum(COSTS.get(name, 0) for name in names)


def parts(includes, path):
    """{what is to be read for a file: the headers of others that may be parsed for that}: the file, or its own header and it."""
    whole = includes.foreign(path)
    own = includes.own_header(path)
    if own is None:
        return {path: whole}
    header = includes.foreign(own) & whole
    return {own: header, path: whole} if cost(whole) - cost(header) > READING_A_HEADER else {path: header}


def choose(reached):
    """{path: the set of headers that are parsed for it}, from {path: the headers of others it reaches}: the set that saves the
    most seconds, then the next, as long as one saves more than it takes to write."""
    wanted = {path: frozenset(names & COSTS.keys()) for path, names in reached.items()}
    counts = collections.Counter(wanted.values())
    candidates = {one & other for one in counts for other in counts}
    best = {want: frozenset() for want in counts}

    def saved(names):
        return sum(count * max(0, cost(names) - cost(best[want])) for want, count in counts.items() if names <= want)
    while candidates:
        names = max(candidates, key=lambda names: (saved(names) - WRITING * cost(names), sorted(names)))
        if saved(names) <= WRITING * cost(names):
            break
        candidates.remove(names)
        best.update({want: names for want in counts if names <= want and cost(names) > cost(best[want])})
    return {path: best[want] for path, want in wanted.items()}


def parse(compiler, arguments, names, path):
    """Writes the precompiled header `path`.pch; the arguments of a file that has it then begin with -include `path`."""
    with open(path, 'w', encoding='utf-8') as file:
        file.write(''.join(f'#include <{name}>\n' for name in sorted(names)))
    subprocess.run([compiler, *arguments, '-fpch-instantiate-templates', '-c', '-x', 'c++-header', path, '-o', path + '.pch'], check=True)
