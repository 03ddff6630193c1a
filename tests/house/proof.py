"""house.proof: each test that a document names exists, where it says: selectors of Catch2's programs match a case of that very
program, and what ctest is asked for by name is registered, under a preset that does not leave it out. In docs/proof.md each row of "Sharpened claims" names its tests,
as `test_<path>` "selector", "selector" or as the name of a test of ctest.
Usage: proof.py SOURCE_ROOT CTEST_FILE; CTEST_FILE is the CTestTestfile.cmake of a build with tests."""
import collections
import fnmatch
import json
import os
import re
import sys

import tree

PROOF = 'docs/proof.md'
TEXT = r'"(?:[^"\\]|\\.)*"'
CASE = re.compile(rf'^TEST_CASE\(\s*((?:{TEXT}\s*)+)(?:,\s*((?:{TEXT}\s*)+))?', re.M)
COMMAND = re.compile(r'\b(?:(?:B|build/release/bin)/(test_\w+)(?: "([^"]*)")?|(test_\w+) "([^"]*)")')
CTEST = re.compile(r'\bctest ([^`\n]*?)-R ("[^"]*"|[^\s`]+)')
PRESET = re.compile(r'--preset[ =](\S+)')
LABELS = re.compile(r'^set_tests_properties\((?:\[=+\[)?([^\]\s"]+)(?:\]=+\])? PROPERTIES .*?LABELS "([^"]*)"', re.M)


def programs(root):
    """Program to the folder of its sources."""
    text = tree.read(root, 'cmake/Tests.cmake')
    found = {'test_' + path.replace('/', '_'): f'tests/{path}' for path in re.findall(r'^ *trireme_tests\(([\w/]+)', text, re.M)}
    return found | {name: f'tests/{path}' for name, path in re.findall(r'^ *trireme_mpi_test\((\w+) ([\w/]+)', text, re.M)}


def cases(root, folders):
    """Program to its cases, as (name, tags). A source belongs to the program of the nearest folder above it."""
    found = collections.defaultdict(list)
    owners = {folder: program for program, folder in folders.items()}
    for path in tree.files(root, ('.cc',)):
        folder = os.path.dirname(path)
        while folder and folder not in owners:
            folder = os.path.dirname(folder)
        if folder:
            found[owners[folder]] += [tuple(''.join(text[1:-1] for text in re.findall(TEXT, part)) for part in match)
                                      for match in CASE.findall(tree.read(root, path))]
    return found


def chosen(selector, names):
    """Those of (name, tags) that one selector of Catch2 chooses: a name with * at its ends only, or tags."""
    selector = selector.strip().lower()
    if selector.startswith('['):  # [.x] is [.] and [x]
        return [name for name, tags in names if all(tag in tags.lower().replace('[.', '[.][') for tag in re.findall(r'\[[^]]*\]', selector))]
    begin, end = selector.startswith('*'), selector.endswith('*')
    core = selector[1 if begin else 0:-1 if end else None]
    fits = {(False, False): core.__eq__, (True, False): lambda name: name.endswith(core),
            (False, True): lambda name: name.startswith(core), (True, True): lambda name: core in name}[begin, end]
    return [name for name, _ in names if fits(name.lower())]


def alternatives(expression):
    """`a.(b|c)|d` to a.b, a.c and d, so that none of them can be wrong unseen."""
    found = []
    for part in re.findall(r'(?:[^|(]|\([^)]*\))+', expression):
        group = re.search(r'\(([^)]*)\)', part)
        found += [part[:group.start()] + one + part[group.end():] for one in group[1].split('|')] if group else [part]
    return found


def filters(root):
    """Preset of tests to its filter, as it inherits it."""
    if not os.path.exists(os.path.join(root, 'CMakePresets.json')):
        return {}
    presets = {preset['name']: preset for preset in json.loads(tree.read(root, 'CMakePresets.json'))['testPresets']}

    def of(name):
        preset = presets[name]
        return preset.get('filter') or (of(preset['inherits']) if 'inherits' in preset else {})
    return {name: of(name) for name in presets}


def passes(chosen_by, name, labels):
    """Whether a filter lets a test through."""
    include, exclude = chosen_by.get('include', {}), chosen_by.get('exclude', {})

    def fits(expression):
        return any(re.search(expression, label) for label in labels)
    return not ('label' in include and not fits(include['label']) or 'label' in exclude and fits(exclude['label']) or
                'name' in exclude and re.search(exclude['name'], name))


class Check:
    def __init__(self, root, ctest_text):
        self._root = root
        self._registered = re.findall(r'^add_test\((?:\[=+\[)?([^\]\s"]+)', ctest_text, re.M)
        self._labels = {name: labels.split(';') for name, labels in LABELS.findall(ctest_text)}
        self._filters = filters(root)
        self._cases = cases(root, programs(root))
        self._programs = programs(root)
        self.faults = []
        self.count = 0

    def _selector(self, where, program, selector):
        self.count += 1
        if chosen(selector, self._cases[program]):
            return
        others = [other for other, names in self._cases.items() if chosen(selector, names)]
        self.faults.append(f'{where}: {program} has no case "{selector}"' +
                           (f', but {", ".join(others)} has' if others else ''))

    def commands(self, where, line):
        """Those of any document."""
        line = line.replace('\\|', '|')  # in a table
        for match in COMMAND.findall(line):
            program, selectors = match[:2] if match[0] else match[2:]
            if program not in self._programs:
                self.faults.append(f'{where}: no program {program} in cmake/Tests.cmake')
                continue
            for selector in filter(None, selectors.split(',')):
                self._selector(where, program, selector)
        every = self._registered + [name for names in self._cases.values() for name, _ in names]
        for before, expression in CTEST.findall(line):
            preset = PRESET.search(before)
            chosen_by = self._filters.get(preset[1], {}) if preset else {}
            for one in alternatives(expression.strip('"')):
                self.count += 1
                found = [name for name in every if re.search(one, name)]
                if not found:
                    self.faults.append(f'{where}: ctest has no test "{one}"')
                # Labels of Catch2's cases are given when they are built, so those are let through.
                elif not any(name not in self._labels or passes(chosen_by, name, self._labels[name]) for name in found):
                    self.faults.append(f'{where}: the preset {preset[1]} leaves out all tests that "{one}" names')

    def claim(self, where, cell):
        """A cell of tests: nothing but what is looked up here."""
        program = None
        tokens = re.findall(r'`([^`]*)`|"([^"]*)"', cell)
        if not tokens or re.sub(r'`[^`]*`|"[^"]*"|[,\s]', '', cell):
            self.faults.append(f'{where}: "{cell.strip()}" is not a list of `test_<path>` "selector" or `test of ctest`')
        for name, selector in tokens:
            if name.startswith('deploy/test '):
                self.count += 1
                if not re.search(rf'^#   {name.split()[1]} ', tree.read(self._root, 'deploy/test'), re.M):
                    self.faults.append(f'{where}: deploy/test has no part {name.split()[1]}')
            elif name in self._programs:
                program = name
            elif name:
                self.count += 1
                if not fnmatch.filter(self._registered, name):
                    self.faults.append(f'{where}: `{name}` is neither a program of cmake/Tests.cmake nor a test of ctest')
            elif program is None:
                self.faults.append(f'{where}: "{selector}" follows no program')
            else:
                self._selector(where, program, selector)


def check(root, ctest_text):
    """(what is wrong, how many names were looked up)"""
    found = Check(root, ctest_text)
    claims = 0
    for path in tree.files(root, ('.md',)):
        section = ''
        for number, line in enumerate(tree.read(root, path).split('\n'), 1):
            section = line[3:] if line.startswith('## ') else section
            where = f'{path}:{number}'
            cells = re.split(r'(?<!\\)\|', line)
            if path == PROOF and section == 'Sharpened claims' and len(cells) > 1:
                if len(cells) != 5:
                    found.faults.append(f'{where}: a row of {len(cells) - 2} columns; claim, test and planted fault were expected')
                elif cells[2].strip() not in ('test', '---'):
                    claims += 1
                    found.claim(where, cells[2])
            else:
                found.commands(where, line)
    if claims == 0:
        found.faults.append(f'{PROOF}: no table "Sharpened claims" of three columns')
    return found.faults, found.count


if __name__ == '__main__':
    with open(sys.argv[2], encoding='utf-8') as file:
        wrong, looked_up = check(sys.argv[1], file.read())
    tree.report('house.proof', wrong, f'{looked_up} tests named in documents exist')
