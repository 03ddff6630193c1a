"""Runs clang-tidy over every source file of a build folder except generated ones and tests, on all cores.
Usage: tidy.py SOURCE_ROOT BUILD_FOLDER [PATH_PREFIX...]; the target `tidy` calls it."""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys

import tree


def sources(root, build, prefixes):
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as file:
        paths = {os.path.relpath(entry['file'], root) for entry in json.load(file)}
    return sorted(p for p in paths if p.endswith('.cc') and p.startswith(prefixes))


def tidy(program, root, build, path):
    # The commands are those of g++: clang does not know all of its warnings.
    command = [program, '-p', build, '--quiet', '--extra-arg=-Wno-unknown-warning-option', path]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    findings = re.findall(r'^.*(?:error|warning):.*$', result.stdout, re.M)
    return findings or ([f'{path}: {result.stderr.strip()}'] if result.returncode else [])


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    program = shutil.which('clang-tidy-14') or shutil.which('clang-tidy')
    if program is None:
        tree.report('tidy', ['clang-tidy-14 is not installed (deploy/install_packages)'], '')
    paths = sources(root, build, tuple(sys.argv[3:]) or tree.OUR_ROOTS[:-1])
    faults = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for findings in pool.map(lambda path: tidy(program, root, build, path), paths):
            # A header's finding comes once for each file that includes it; it is shown as soon as it is known.
            fresh = [finding for finding in findings if finding not in faults]
            faults += fresh
            for finding in fresh:
                print(finding, flush=True)
    tree.report('tidy', [f'{len(faults)} finding(s) above'] if faults else [], f'{len(paths)} files are clean')


if __name__ == '__main__':
    main()
