"""house.format: clang-format 14 would change nothing. Usage: format.py SOURCE_ROOT. Exit code 77 skips: no clang-format 14."""
import os
import re
import shutil
import subprocess
import sys

import tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402


def clang_format():
    for name in ('clang-format-14', 'clang-format'):
        if shutil.which(name):
            version = subprocess.run([name, '--version'], capture_output=True, text=True, check=True).stdout
            if ' version 14.' in version:
                return name
    return None


def check(root, program):
    paths = tree.files(root, tree.SOURCE_SUFFIXES)
    result = subprocess.run([program, '--dry-run', '--style=file'] + paths, cwd=root, capture_output=True, text=True, check=False)
    faults = sorted(set(re.findall(r'^(\S+?):\d+:\d+: warning: code should be clang-formatted', result.stderr, re.M)))
    if result.returncode:
        faults.append(result.stderr.strip())
    return [f'{fault}: not formatted; run {program} -i on it' for fault in faults]


if __name__ == '__main__':
    found = clang_format()
    if found is None:
        skips.leave(skips.NOT_INSTALLED + 'clang-format-14')
    tree.report('house.format', check(sys.argv[1], found), 'all files are formatted')
