"""house.install: the installed tree works after it is moved. Usage: install.py BUILD_FOLDER"""
import os
import re
import subprocess
import sys
import tempfile

import tree


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, **options)


def check(build):
    with tempfile.TemporaryDirectory(prefix='trireme_install_') as folder:
        first, moved = os.path.join(folder, 'first'), os.path.join(folder, 'moved here')
        result = run(['cmake', '--install', build, '--prefix', first])
        if result.returncode:
            return [f'cmake --install: {result.stderr.strip()}']
        if not os.path.isdir(first):
            return ['cmake --install: installed nothing']
        os.rename(first, moved)
        faults = []
        for path in ('bin/trireme', 'bin/trireme-worker', 'share/trireme/examples/demo.yaml', 'share/doc/trireme/README.md'):
            if not os.path.exists(os.path.join(moved, path)):
                faults.append(f'{path}: not installed')
        if faults:
            return faults
        # An empty environment: nothing of the build folder may be found through it.
        result = run([os.path.join(moved, 'bin/trireme'), 'version'], env={'PATH': '/usr/bin:/bin'}, cwd=folder)
        if result.returncode or not re.search(r'\d+\.\d+\.\d+', result.stdout):
            faults.append(f'trireme version: exit {result.returncode}, said "{result.stdout}{result.stderr}"')
        for program in ('trireme', 'trireme-worker'):
            text = run(['readelf', '-d', os.path.join(moved, 'bin', program)]).stdout
            for path in re.findall(r'(?:RPATH|RUNPATH).*\[(.*)\]', text):
                if build in path:
                    faults.append(f'{program}: looks for libraries in the build folder: {path}')
        return faults


if __name__ == '__main__':
    tree.report('house.install', check(os.path.abspath(sys.argv[1])), 'the installed tree moves')
