"""Runs a program that is to end in one way only, told by its exit code and by a text in its output: either alone would let one
pass that says the words and is then killed, or that fails of something else.
Usage: ends_as_told.py EXIT_CODE TEXT PROGRAM [ARGUMENT...]"""
import subprocess
import sys


def faults(code, text, ended, output):
    found = []
    if ended != code:
        found.append(f'ended with {ended}' + (' (by a signal)' if ended < 0 else '') + f'; {code} was expected')
    if text not in output:
        found.append(f'did not print "{text}"')
    return found


def main():
    if len(sys.argv) < 4 or not sys.argv[1].isdigit() or not sys.argv[2]:
        sys.exit(__doc__)
    code, text, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    # The program's own limit, or ctest's, ends it.
    done = subprocess.run(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace', check=False)
    sys.stdout.write(done.stdout)
    found = faults(code, text, done.returncode, done.stdout)
    for fault in found:
        print(f'{program[0]}: {fault}')
    sys.exit(1 if found else 0)


if __name__ == '__main__':
    main()
