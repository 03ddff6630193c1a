"""house.listed: every test method of Python is run by a test of ctest. CMake names them one by one (trireme_python_tests), so
one that is forgotten there would never run, and nothing would be red.
Usage: listed.py SOURCE_ROOT CTEST_FILE; CTEST_FILE is the CTestTestfile.cmake of a build with tests."""
import ast
import re
import sys

import tree


def methods(text):
    """(class, method) of all tests of a file."""
    return [(each.name, part.name) for each in ast.parse(text).body if isinstance(each, ast.ClassDef)
            for part in each.body if isinstance(part, ast.FunctionDef) and part.name.startswith('test')]


def check(root, ctest_text):
    """(what is wrong, how many methods were looked up)"""
    commands = [re.findall(r'"((?:[^"\\]|\\.)*)"', line) for line in ctest_text.split('\n') if line.startswith('add_test(')]
    faults, count = [], 0
    for path in tree.files(root, ('.py',)):
        if not path.startswith('tests/'):
            continue
        of_file = [command for command in commands if any(word.endswith('/' + path) for word in command)]
        chosen = {word for command in of_file for word in command}
        # A file that is given no class runs all of its tests.
        whole = any(not re.fullmatch(r'[A-Z]\w*(\.test\w*)?', command[-1]) for command in of_file)
        for test_class, method in methods(tree.read(root, path)):
            count += 1
            if not whole and not {test_class, f'{test_class}.{method}'} & chosen:
                faults.append(f'{path}: {test_class}.{method} is run by no test of ctest; name it where '
                              f'trireme_python_tests(... {path.removeprefix("tests/")} ...) is called')
    return faults, count


if __name__ == '__main__':
    with open(sys.argv[2], encoding='utf-8') as file:
        wrong, looked_up = check(sys.argv[1], file.read())
    tree.report('house.listed', wrong, f'{looked_up} methods are run by ctest')
