"""Reads every source file of a build folder by itself, as the compiler would, and every header that no source file of its name
includes first, so that an include that is missing shows: the other builds compile the files of a room in batches, where one
file's include serves the next.
Usage: single_files.py SOURCE_ROOT BUILD_FOLDER [PATH_PREFIX...]; the target `single_files` calls it."""
import concurrent.futures
import os
import re
import subprocess
import sys

import tidy
import tree

# Warnings are the business of the builds that make programs. Without optimisation there is less to read in system headers.
HEADERS = '_verify_interface_header_sets/'
ARGUMENTS = ('-w', '-O0', '-fsyntax-only')


def commands(root, build, prefixes):
    """tidy.commands, and those of the files that CMake writes to include one header each (VERIFY_INTERFACE_HEADER_SETS)."""
    headers = os.path.relpath(build, root) + '/trireme_'
    found = tidy.commands(root, build, (*prefixes, headers), ('.cc', '.h.cxx'))
    return {path: arguments for path, arguments in found.items() if HEADERS in path or path.startswith(prefixes)}


def read(compiler, build, path, arguments):
    """The errors of one file."""
    result = subprocess.run([compiler, *arguments, *ARGUMENTS], cwd=build, capture_output=True, text=True, check=False)
    found = re.findall(r'^.*error:.*$', result.stderr, re.M)
    return found or ([f'{path}: {result.stderr.strip()}'] if result.returncode else [])


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    with open(os.path.join(build, 'CMakeCache.txt'), encoding='utf-8') as file:
        compiler = re.search(r'^CMAKE_CXX_COMPILER:\w+=(.+)$', file.read(), re.M).group(1)
    compiled = commands(root, build, tuple(sys.argv[3:]) or tree.OUR_ROOTS)
    faults = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for found in pool.map(lambda path: read(compiler, build, path, [*compiled[path], '-c', os.path.join(root, path)]),
                              sorted(compiled)):
            faults += found
            for fault in found:
                print(fault, flush=True)
    tree.report('single_files', [f'{len(faults)} error(s) above'] if faults else [], f'{len(compiled)} files compile alone')


if __name__ == '__main__':
    main()
