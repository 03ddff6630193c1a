"""house.sizes: files of at most 600 lines and 100 columns, no words that mark unfinished work, no names that say nothing,
no #if outside the backend folders, no environment knobs of our own, no loops over folders that throw, no waits by the time of day,
no test cases that end early without a word to ctest.
Usage: sizes.py SOURCE_ROOT"""
import os
import re
import sys

import tree

LINES = 600
COLUMNS = 100
# Assembled, so that this file does not hold the words it looks for.
UNFINISHED = re.compile('|'.join(['TO' + 'DO', 'FIX' + 'ME', r'\bXX' + r'X\b', r'for ' + r'now\b', 'simpli' + 'fied',
                                  'place' + 'holder', 'not ' + 'implemented', 'un' + 'implemented']))
EMPTY_NAMES = {'utils', 'util', 'common', 'core', 'misc', 'manager', 'helper', 'helpers'}
# compress/c is a header for C, which must say extern "C" to C++ alone.
BACKENDS = ('runtime/comm/mpi/', 'runtime/comm/nccl/', 'runtime/kernels/cpu/', 'runtime/kernels/cuda/', 'compress/c/')
CONDITION = re.compile(r'^\s*#\s*(if|ifdef|ifndef|elif)\b')
THROWS = 'directory_iterator'  # its ++ does, where a disk fails
LISTS = 'runtime/base/folder_names.cc'
# absl's, which an hour that the day is set back makes an hour longer.
BY_TIME_OF_DAY = re.compile(r'\b(Await|LockWhen|Wait|WaitForNotification)With(Timeout|Deadline)\(')
# Catch counts a case that says by a warning that it was left out as one that has passed.
WARNS = re.compile(r'\bWARN\(')
RETURNS = re.compile(r'^\s+(if \(.*\) )?return;')
OF_A_CASE = re.compile(r'(if|else|for|while|do|switch|case|SECTION)\b|\}|\{')
KNOB = re.compile(r'getenv\s*\(\s*"TRIREME')
CODE = tree.SOURCE_SUFFIXES + ('.proto', '.py', '.sh', '.cmake', 'CMakeLists.txt')


def left_early(lines):
    """Numbers of the lines that end a test case by a plain return, lambdas' own aside."""
    found, opened = [], None
    for number, line in enumerate(lines, 1):
        if line.startswith(('TEST_CASE', 'TEMPLATE_TEST_CASE', 'SCENARIO')):
            opened = []
        elif line.startswith('}'):
            opened = None
        if opened is None or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        opened = [(at, text) for at, text in opened if at < indent]
        # What encloses it by its indent: statements of the case alone, or somebody's function.
        if RETURNS.match(line) and all(OF_A_CASE.match(text) for _, text in opened if text):
            found.append(number)
        opened.append((indent, line.strip() if indent else ''))
    return found


def file_faults(path, text, header_begins_with_purpose=False):
    """A .cc file need not repeat the purpose that the header of the same stem says."""
    faults = []
    lines = text.split('\n')
    cpp = path.endswith(tree.SOURCE_SUFFIXES)
    if len(lines) - 1 > LINES:
        faults.append(f'{path}: {len(lines) - 1} lines; at most {LINES}, split it by role')
    words = set(re.split(r'[/_.]', path))
    if words & EMPTY_NAMES:
        faults.append(f'{path}: the name {sorted(words & EMPTY_NAMES)[0]} says nothing; name what it does')
    if path.endswith('.h') and '#pragma once' not in text:
        faults.append(f'{path}: no #pragma once')
    if cpp and not text.startswith('//') and not header_begins_with_purpose:
        faults.append(f'{path}: does not begin with its purpose')
    for number, line in enumerate(lines, 1):
        where = f'{path}:{number}'
        match = UNFINISHED.search(line)
        if match:
            faults.append(f'{where}: "{match.group(0)}" marks unfinished work')
        if not cpp:
            continue
        if len(line) > COLUMNS and 'http' not in line and '#include' not in line:
            faults.append(f'{where}: {len(line)} columns; at most {COLUMNS}')
        if CONDITION.match(line) and not path.startswith(BACKENDS):
            faults.append(f'{where}: conditional compilation outside the backend folders')
        if THROWS in line and path != LISTS and not path.startswith('tests/'):
            faults.append(f'{where}: {THROWS} throws where a disk fails; base::VisitNames does not')
        if BY_TIME_OF_DAY.search(line) and not path.startswith('tests/'):
            faults.append(f'{where}: waits by the time of day, which people set; runtime/base/steady_wait.h does not')
        if WARNS.search(line) and path.startswith('tests/'):
            faults.append(f'{where}: a warning passes as green; tests/skip.h says what cannot run here')
        if KNOB.search(line):
            faults.append(f'{where}: an environment knob; options belong in proto/trireme/v1/job_spec.proto')
    if path.startswith('tests/') and cpp:
        faults += [f'{path}:{number}: a case that ends early passes as green; tests/skip.h says what cannot run here'
                   for number in left_early(lines)]
    return faults


def check(root):
    faults = []
    paths = set(tree.files(root, CODE))
    for path in sorted(paths):
        header = path[:-len('.cc')] + '.h'
        said = path.endswith('.cc') and header in paths and tree.read(root, header).startswith('//')
        faults += file_faults(path, tree.read(root, path), said)
    for script in ('deploy/demo', 'deploy/test', 'deploy/install_packages', '.ci/run'):
        if os.path.exists(os.path.join(root, script)):
            faults += file_faults(script, tree.read(root, script))
    return faults


if __name__ == '__main__':
    tree.report('house.sizes', check(sys.argv[1]), 'sizes, names and words are as agreed')
