"""Reads every source file of a build folder by itself, as the compiler would, and every header that no source file of its name
includes first, so that an include that is missing shows: the other builds compile the files of a room in batches, where one
file's include serves the next.
Usage: single_files.py SOURCE_ROOT BUILD_FOLDER [PATH_PREFIX...]; the target `single_files` calls it."""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

import parsed_headers
import tidy
import tree

HEADERS = '_verify_interface_header_sets/'
# Warnings are the business of the builds that make programs. Without optimisation there is less to read in system headers.
ARGUMENTS = ('-w', '-O0', '-fsyntax-only')
# What changes the macros that a precompiled header was made with, and no file's includes.
FOREIGN_DEFINITION = re.compile(r'-D(?!TRIREME_|.*_EXPORTS)')
LEFT_OUT = re.compile(r'-(O.?|g.?|fPI[CE]|fopenmp(=.*)?|pthread|W.*)$')


def commands(root, build, prefixes):
    """tidy.commands, and those of the files that CMake writes to include one header each (VERIFY_INTERFACE_HEADER_SETS). All
    have the definitions of any: those of libraries (FMT_SHARED) would keep files from sharing a precompiled header."""
    headers = os.path.relpath(build, root) + '/trireme_'
    found = tidy.commands(root, build, (*prefixes, headers), ('.cc', '.h.cxx'))
    defined = sorted({word for arguments in found.values() for word in arguments if FOREIGN_DEFINITION.match(word)})
    return {path: [*defined, *(word for word in arguments if not LEFT_OUT.match(word) and word not in defined)]
            for path, arguments in found.items() if HEADERS in path or path.startswith(prefixes)}


def read(compiler, build, path, arguments):
    """The errors of one file."""
    result = subprocess.run([compiler, *arguments, *ARGUMENTS], cwd=build, capture_output=True, text=True, check=False)
    found = re.findall(r'^.*error:.*$', result.stderr, re.M)
    return found or ([f'{path}: {result.stderr.strip()}'] if result.returncode else [])


def faults_of(compiler, root, build, compiled, pool):
    """The errors of all files, each printed as soon as it is known."""
    includes = parsed_headers.Includes([root, os.path.join(build, 'generated')])
    reached, arguments = {}, {}
    for path, given in compiled.items():
        for part, names in parsed_headers.parts(includes, os.path.join(root, path)).items():
            reached[part] = names
            arguments[part] = [*given, '-x', 'c++', '-c', part]
    chosen = parsed_headers.choose(reached)
    faults = []
    with tempfile.TemporaryDirectory(dir=build) as folder:
        headers = {names: os.path.join(folder, f'headers_{i}.h') for i, names in enumerate(set(chosen.values()) - {frozenset()})}
        examples = {names: part for part, names in chosen.items()}

        def parse(names):
            given = arguments[examples[names]][:-4]
            parsed_headers.parse(compiler, [*given, *ARGUMENTS[:2]], names, headers[names])

        def read_part(part):
            first = ['-include', headers[chosen[part]]] if chosen[part] else []
            return read(compiler, build, os.path.relpath(part, root), [*first, *arguments[part]])
        list(pool.map(parse, headers))
        for found in pool.map(read_part, sorted(reached)):
            faults += found
            for fault in found:
                print(fault, flush=True)
    return faults


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    with open(os.path.join(build, 'CMakeCache.txt'), encoding='utf-8') as file:
        compiler = re.search(r'^CMAKE_CXX_COMPILER:\w+=(.+)$', file.read(), re.M).group(1)
    compiled = commands(root, build, tuple(sys.argv[3:]) or tree.OUR_ROOTS)
    if not compiled:
        tree.report('single_files', [f'{build} compiles no such file'], '')
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        faults = faults_of(compiler, root, build, compiled, pool)
    tree.report('single_files', [f'{len(faults)} error(s) above'] if faults else [], f'{len(compiled)} files compile alone')


if __name__ == '__main__':
    main()
