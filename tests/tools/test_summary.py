"""What deploy/test says at the end of a part. Usage: test_summary.py CTEST_LOG JUNIT_XML

Prints how many tests were run, passed, failed, skipped and tried again, then a line for each of the last three, under a failed
one the end of its output: what is kept of a run may be its last lines alone. Exit code 1: a test was skipped for want of something that
deploy/install_packages installs, or none passed, so the part has not shown what it should."""
import re
import sys
import xml.etree.ElementTree

NOT_INSTALLED = 'not installed: '
SHOWN, WIDTH = 25, 200  # lines of a failed test, and characters of each
REASON = re.compile(r'^skipped: (.+)$', re.M)
# "12/57 Test  #3: worker.ends ......***Failed  1.20 sec", or "......Subprocess aborted***Exception: "; skips have stars too.
VERDICT = re.compile(r'Test +#\d+: (.+?) \.*[^.*]*\*\*\*(Failed|Timeout|Exception|Not Run)')


def reasons_of(case):
    said = REASON.findall(case.findtext('system-out') or '')
    return '; '.join(dict.fromkeys(said)) or 'no reason was printed'


def end_of(case):
    lines = [line for line in (case.findtext('system-out') or 'no output').splitlines() if line.strip()]
    return [f'    | {line[:WIDTH]}' for line in lines[-SHOWN:]]


def was_skipped(case):
    """By its exit code. A test whose program is missing is written down as skipped too, but that is a failure."""
    skip = case.find('skipped')
    return skip is not None and skip.get('message', '').startswith('SKIP_RETURN_CODE')


def summary(log, cases):
    """(lines, whether no skip is a fault of the set-up)"""
    skipped = {case.get('name'): reasons_of(case) for case in cases if was_skipped(case)}
    failed = {case.get('name'): end_of(case) for case in cases
              if case.get('status') != 'run' and case.get('name') not in skipped}
    again = [name for name in dict.fromkeys(found[0] for found in VERDICT.findall(log)) if name not in failed]
    passed = len(cases) - len(skipped) - len(failed)
    lines = [f'{len(cases)} tests: {passed} passed, {len(failed)} failed, {len(skipped)} skipped, '
             f'{len(again)} tried again']
    for name, end in failed.items():
        lines += [f'  failed       {name}', *end]
    lines += [f'  skipped      {name}: {reason}' for name, reason in skipped.items()]
    lines += [f'  tried again  {name}' for name in again]
    wrong = [name for name, reason in skipped.items() if NOT_INSTALLED in reason or reason == 'no reason was printed']
    lines += [f'  fault        {name} may not be skipped for that: deploy/install_packages should have installed it'
              for name in wrong if NOT_INSTALLED in skipped[name]]
    lines += [f'  fault        {name} was skipped and gave no reason' for name in wrong
              if NOT_INSTALLED not in skipped[name]]
    if passed == 0:
        lines.append('  fault        no test passed, so nothing has been shown')
    return lines, not wrong and passed > 0


def main():
    with open(sys.argv[1], encoding='utf-8', errors='replace') as file:
        log = file.read()
    cases = list(xml.etree.ElementTree.parse(sys.argv[2]).getroot().iter('testcase'))
    lines, good = summary(log, cases)
    print('\n'.join(lines))
    sys.exit(0 if good else 1)


if __name__ == '__main__':
    main()
