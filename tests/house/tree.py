"""The source tree as the house checks see it: which files there are, and how a check reports."""
import os
import sys

SOURCE_SUFFIXES = ('.cc', '.h', '.inc', '.cu', '.cuh')
OUR_ROOTS = ('runtime', 'checkpoint', 'compress', 'coordinator', 'worker', 'tests')
NOT_OURS = ('build', 'runs')


def files(root, suffixes):
    """Paths, relative to root, of all files whose name ends in one of suffixes; build outputs and dot folders left out."""
    found = []
    for folder, folders, names in os.walk(root):
        top = folder == root
        folders[:] = sorted(d for d in folders if not d.startswith('.') and d != '__pycache__' and
                            not (top and d in NOT_OURS))
        for name in sorted(names):
            if name.endswith(suffixes):
                found.append(os.path.relpath(os.path.join(folder, name), root))
    return found


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8', errors='replace') as file:
        return file.read()


def report(check, faults, passed):
    """Prints every fault at once and ends the program with ctest's verdict."""
    for fault in faults:
        print(fault)
    if faults:
        print(f'{check}: {len(faults)} fault(s)')
        sys.exit(1)
    print(f'{check}: {passed}')
