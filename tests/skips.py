"""How the tests in Python say that they cannot run here: exit code 77 and "skipped: <reason>", which ctest and
deploy/test count apart. A failure beside it wins. A reason that begins with NOT_INSTALLED is a fault of the set-up."""
import sys
import unittest

SKIPPED = 77
NOT_INSTALLED = 'not installed: '


def leave(reason):
    """Ends a program none of whose tests can run."""
    print('skipped:', reason)
    sys.exit(SKIPPED)


def main(argv=None):
    """unittest.main, and 77 where a test was skipped and none failed."""
    result = unittest.main(module='__main__', argv=argv or sys.argv, verbosity=2, exit=False).result
    for _, reason in result.skipped:
        print('skipped:', reason)
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun == 0 and not result.skipped:  # a class that cannot run skips without running one
        print('no test was run')
        sys.exit(1)
    sys.exit(SKIPPED if result.skipped else 0)
