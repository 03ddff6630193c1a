"""house.skips: a word in a test's output turns no failure into a skip or a pass, and a skip for want of a package fails
deploy/test.
Runs a small project with the real cmake/AddTest.cmake under the real ctest, by what deploy/test runs it with.
Usage: skips_test.py SOURCE_ROOT PLANTED_VERDICTS"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402
import tree  # noqa: E402

ROOT = VERDICTS = ''
LIMIT_S = 60
PRESETS = '''{"version": 5, "configurePresets": [{"name": "planted", "binaryDir": "${sourceDir}/build"}],
"testPresets": [{"name": "planted", "configurePreset": "planted", "output": {"outputOnFailure": true}}]}'''
PROJECT = '''cmake_minimum_required(VERSION 3.25)
project(planted LANGUAGES NONE)
enable_testing()
include("{root}/cmake/AddTest.cmake")
function(planted name)
  trireme_add_test(${{name}} SECONDS 20 LABELS fast COMMAND sh "{folder}/${{name}}.sh")
endfunction()
{tests}
'''


class Skips(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='trireme-skips-')
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_tests(self, tests, *arguments):
        """ctest's exit code, the summary's, and what the summary says."""
        with open(f'{self.folder}/CMakeLists.txt', 'w', encoding='utf-8') as file:
            file.write(PROJECT.format(root=ROOT, folder=self.folder,
                                      tests='\n'.join(f'planted({name})' for name in tests)))
        for name, script in tests.items():
            with open(f'{self.folder}/{name}.sh', 'w', encoding='utf-8') as file:
                file.write(script + '\n')
        build = f'{self.folder}/build'
        subprocess.run(['cmake', '-S', self.folder, '-B', build], check=True, capture_output=True, timeout=LIMIT_S)
        with open(f'{self.folder}/log', 'w', encoding='utf-8') as log:
            ran = subprocess.run(['ctest', '--test-dir', build, '--output-junit', f'{self.folder}/junit.xml', *arguments],
                                 stdout=log, stderr=log, check=False, timeout=LIMIT_S)
        told = subprocess.run([sys.executable, '-B', f'{ROOT}/tests/tools/test_summary.py', f'{self.folder}/log',
                               f'{self.folder}/junit.xml'], capture_output=True, text=True, check=False, timeout=LIMIT_S)
        return ran.returncode, told.returncode, told.stdout + told.stderr

    def test_a_failure_that_prints_the_word(self):
        tests = {'good': 'true', 'bad': 'echo skipped_steps: 3; echo skipped: nothing; false'}
        ran, _, text = self.run_tests(tests)
        self.assertNotEqual(ran, 0)
        self.assertIn('2 tests: 1 passed, 1 failed, 0 skipped', text)

    def test_why_a_test_failed(self):
        many = 'seq 1000 1099; echo " ]]> & <x>"; false'
        _, _, text = self.run_tests({'good': 'echo not this', 'bad': many, 'worse': 'false'})
        self.assertRegex(text, r'failed +bad\n    \| 1076\n(    \| 10\d\d\n){23}    \|  \]\]> & <x>\n')
        self.assertRegex(text, r'failed +worse\n    \| no output')
        self.assertNotIn('not this', text)

    def test_a_skip_has_a_reason(self):
        ran, told, text = self.run_tests({'good': 'true', 'away': 'echo "skipped: not here: a moon"; exit 77'})
        self.assertEqual((ran, told), (0, 0), text)
        self.assertIn('2 tests: 1 passed, 0 failed, 1 skipped, 0 tried again', text)
        self.assertRegex(text, 'skipped +away: not here: a moon')

    def test_a_skip_for_want_of_a_package(self):
        ran, told, text = self.run_tests({'away': 'echo "skipped: not installed: moon"; exit 77'})
        self.assertEqual((ran, told), (0, 1), text)
        self.assertRegex(text, 'fault +away')

    def test_a_skip_without_a_reason(self):
        self.assertEqual(self.run_tests({'away': 'exit 77'})[1], 1)

    def test_a_second_try_is_told(self):
        for ends in ('false', 'kill -ABRT $$', 'kill -SEGV $$', 'kill -KILL $$', 'kill -TERM $$'):
            with self.subTest(ends):
                tests = {'late': f'test -e {self.folder}/tried || {{ touch {self.folder}/tried; {ends}; }}'}
                ran, told, text = self.run_tests(tests, '--repeat', 'until-pass:2')
                os.remove(f'{self.folder}/tried')
                self.assertEqual((ran, told), (0, 0), text)
                self.assertRegex(text, '1 tried again\n.*tried again +late')

    def test_the_script(self):
        """deploy/test's own function: (its exit code, what its summary says)."""
        failure = {'good': 'true', 'bad': 'echo skipped: nothing; false'}
        for tests, code, words in ((failure, 8, 'failed +bad'), ({'good': 'true'}, 0, '1 passed'),
                                   ({'good': 'true', 'away': 'echo "skipped: not here: a moon"; exit 77'}, 0,
                                    'skipped +away: not here: a moon'),
                                   ({'away': 'echo "skipped: not here: a moon"; exit 77'}, 1, 'fault +no test passed'),
                                   ({'away': 'echo "skipped: not installed: moon"; exit 77'}, 1, 'fault +away')):
            with self.subTest(words):
                self.run_tests(tests)
                with open(f'{self.folder}/CMakePresets.json', 'w', encoding='utf-8') as file:
                    file.write(PRESETS)
                script = (f'set -euo pipefail; source "{ROOT}/deploy/test_preset.sh"; closing=; rc=0; '
                          'test_preset planted >&2 || rc=$?; echo "$closing"; exit $rc')
                ran = subprocess.run(['bash', '-c', script], cwd=self.folder, capture_output=True, text=True, check=False,
                                     timeout=LIMIT_S)
                self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
                self.assertRegex(ran.stdout, words)

    def test_who_is_tried_again(self):
        """Who kills processes, and nobody else."""
        with open(f'{ROOT}/CMakePresets.json', encoding='utf-8') as file:
            presets = json.load(file)['testPresets']
        again = [preset for preset in presets if 'repeat' in preset.get('execution', {})]
        self.assertEqual([preset['filter']['include']['label'] for preset in again], ['^kills$'])

    def test_cases_of_catch_that_fail_and_skip(self):
        for names, code in (('planted failure', 1), ('planted skip', 77), ('planted success', 0),
                            ('planted failure,planted skip', 1), ('planted skip,planted success', 77),
                            # A name that CMake has cut at a semicolon.
                            ('planted', 1)):
            done = subprocess.run([VERDICTS, names], capture_output=True, check=False, timeout=LIMIT_S)
            self.assertEqual(done.returncode, code, (names, done.stdout))

    def test_python_tests_that_fail_and_skip(self):
        script = f'{self.folder}/planted.py'
        with open(script, 'w', encoding='utf-8') as file:
            file.write(f'''import sys
import unittest
sys.path.insert(0, {ROOT + "/tests"!r})
import skips
class Planted(unittest.TestCase):
    def test_bad(self):
        print("skipped: not really")
        self.fail()
    def test_away(self):
        self.skipTest("not here: a moon")
    def test_good(self):
        pass
class Away(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("not here: a sun")
    def test_good(self):
        pass
skips.main()
''')
        planted = [f'Planted.test_{name}' for name in ('bad', 'away', 'good')]
        for names, code in ((planted[:1], 1), (planted[1:2], 77), (planted[2:], 0), (planted[:2], 1), (['Away'], 77),
                            (['Away', planted[0]], 1)):
            done = subprocess.run([sys.executable, '-B', script, *names],
                                  capture_output=True, check=False, timeout=LIMIT_S)
            self.assertEqual(done.returncode, code, names)

    def test_a_program_that_is_to_fail(self):
        """Its words count only with its exit code, and its exit code only with its words."""
        for script, fault in (('echo it was named; exit 7', None), ('echo it was named >&2; exit 7', None),
                              ('echo it was named; kill -SEGV $$', 'ended with -11 (by a signal); 7 was expected'),
                              ('echo it was named; exit 1', 'ended with 1; 7 was expected'),
                              ('echo it was named', 'ended with 0; 7 was expected'),
                              ('echo nothing; exit 7', 'did not print "it was named"')):
            with self.subTest(script):
                done = subprocess.run([sys.executable, '-B', f'{ROOT}/tests/tools/ends_as_told.py', '7', 'it was named', 'sh', '-c',
                                       script], capture_output=True, text=True, check=False, timeout=LIMIT_S)
                self.assertEqual(done.returncode, 1 if fault else 0, done.stdout)
                self.assertIn(f'sh: {fault}' if fault else 'it was named', done.stdout)

    def test_no_test_is_judged_by_its_words(self):
        """Nor by any exit code that is not 0, as a program killed by a signal has it."""
        by_words = re.compile('(SKIP|PASS|FAIL)_REGULAR_' + 'EXPRESSION|WILL_' + 'FAIL')
        for path in tree.files(ROOT, ('.cmake', 'CMakeLists.txt', '.py')):
            self.assertIsNone(by_words.search(tree.read(ROOT, path)), path)


if __name__ == '__main__':
    ROOT, VERDICTS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    skips.main()
