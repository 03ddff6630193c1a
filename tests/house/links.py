"""house.ldd: the command line and the planner run on a machine without MPI, oneDNN, OpenBLAS or CUDA.
Usage: links.py PROGRAM..."""
import re
import subprocess
import sys

import tree

DATA_PLANE = re.compile(r'\b(libmpi|libopen-|libpmix|libdnnl|libopenblas|libcuda|libcudart|libcublas|libcudnn|libnccl)\S*(?= => )')


def check(programs):
    faults = []
    for program in programs:
        result = subprocess.run(['ldd', program], capture_output=True, text=True, check=False)
        if result.returncode:
            faults.append(f'{program}: {result.stderr.strip() or result.stdout.strip()}')
        libraries = {match.group(0) for match in DATA_PLANE.finditer(result.stdout)}
        faults += [f'{program}: links {library}' for library in sorted(libraries)]
    return faults


if __name__ == '__main__':
    tree.report('house.ldd', check(sys.argv[1:]), 'no library of the data plane is linked')
