"""Runs clang-tidy over every source file of a build folder except generated ones and tests, on all cores.
Usage: tidy.py SOURCE_ROOT BUILD_FOLDER [PATH_PREFIX...]; the target `tidy` calls it.

The files of a room are read as one, so the headers they share are parsed and walked once for up to GROUP files; a group
that does not compile as one (two files may have a static name in common) is halved until it does."""
import collections
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import tree

GROUP = 12
OUR_SOURCES = r'/(runtime|checkpoint|compress|coordinator|worker)/.*\.(h|cc)$'


def commands(root, build, prefixes, suffixes='.cc'):
    """{path: the arguments it is compiled with, without compiler, launcher, input and output}."""
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as file:
        entries = json.load(file)
    found = {}
    for entry in entries:
        path = os.path.relpath(entry['file'], root)
        if path.endswith(suffixes) and path.startswith(prefixes):
            arguments = shlex.split(entry['command'])
            first = next(i for i, word in enumerate(arguments) if word.startswith('-'))
            found[path] = arguments[first:arguments.index('-o')]
    return found


def groups(compiled):
    """Lists of paths of one folder that are compiled alike, the longest lists first."""
    alike = collections.defaultdict(list)
    for path in sorted(compiled):
        alike[os.path.dirname(path), tuple(compiled[path])].append(path)
    parts = [paths[at:at + GROUP] for paths in alike.values() for at in range(0, len(paths), GROUP)]
    return sorted(parts, key=len, reverse=True)


def tidy(program, root, build, paths, arguments):
    """The findings in files of one folder that are compiled with the same arguments."""
    with tempfile.NamedTemporaryFile('w', suffix='.cc', dir=build) as whole:
        whole.write(''.join(f'#include "{os.path.join(root, path)}"\n' for path in paths))
        whole.flush()
        result = subprocess.run(
            [program, '--quiet', f'--config-file={os.path.join(root, ".clang-tidy")}', f'--header-filter={OUR_SOURCES}',
             whole.name, '--', *arguments], cwd=build, capture_output=True, text=True, check=False)
    if len(paths) > 1 and 'clang-diagnostic-error' in result.stdout:
        middle = len(paths) // 2
        return (tidy(program, root, build, paths[:middle], arguments) +
                tidy(program, root, build, paths[middle:], arguments))
    findings = re.findall(r'^.*(?:error|warning):.*$', result.stdout, re.M)
    return findings or ([f'{", ".join(paths)}: {result.stderr.strip()}'] if result.returncode else [])


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    program = shutil.which('clang-tidy-14') or shutil.which('clang-tidy')
    if program is None:
        tree.report('tidy', ['clang-tidy-14 is not installed (deploy/install_packages)'], '')
    compiled = commands(root, build, tuple(sys.argv[3:]) or tree.OUR_ROOTS[:-1])
    if not compiled:
        tree.report('tidy', [f'{build} compiles no such file'], '')
    faults = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for findings in pool.map(lambda paths: tidy(program, root, build, paths, compiled[paths[0]]), groups(compiled)):
            # A header's finding comes once for each group that includes it; it is shown as soon as it is known.
            fresh = [finding for finding in findings if finding not in faults]
            faults += fresh
            for finding in fresh:
                print(finding, flush=True)
    tree.report('tidy', [f'{len(faults)} finding(s) above'] if faults else [], f'{len(compiled)} files are clean')


if __name__ == '__main__':
    main()
