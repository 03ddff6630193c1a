"""house.python: every name that a Python file uses is one that it has. Tests that run by name alone would else rot unseen.
Usage: python_names.py SOURCE_ROOT. Exit code 77 skips: no pyflakes3."""
import os
import shutil
import subprocess
import sys

import tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402


def check(root, program):
    paths = tree.files(root, ('.py',))
    result = subprocess.run([program] + paths, cwd=root, capture_output=True, text=True, check=False)
    faults = result.stdout.splitlines()
    if result.stderr or (result.returncode and not faults):
        faults.append(f'{program} ended with {result.returncode}: {result.stderr.strip()}')
    return faults


if __name__ == '__main__':
    found = shutil.which('pyflakes3')
    if found is None:
        skips.leave(skips.NOT_INSTALLED + 'pyflakes3')
    tree.report('house.python', check(sys.argv[1], found), 'all names are known')
