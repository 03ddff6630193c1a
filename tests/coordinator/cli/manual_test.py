"""What `trireme` says of itself: docs/cli.md, manual pages, and completions in the shells that are installed. A shell that is
not is skipped. Usage: manual_test.py TRIREME CLI.md [Manual.test_...]"""
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

TRIREME = os.path.abspath(sys.argv[1])
PAGE = os.path.abspath(sys.argv[2])
BASH = r'''
source <("$TRIREME" completion bash) || exit 1
ask() {  # each argument is a word; bash takes them apart itself only where readline does
  COMP_WORDS=("$TRIREME" "$@"); COMP_CWORD=$#; COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
  _trireme_complete
  printf '%s|' "${COMPREPLY[@]}"; echo
}
'''


def run(arguments, **options):
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=100, **options)


class Manual(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix='trireme_manual_')
        self.addCleanup(self.folder.cleanup)
        os.mkdir(os.path.join(self.folder.name, 'two words'))
        with open(os.path.join(self.folder.name, 'a job.yaml'), 'w', encoding='utf-8') as file:
            file.write('')

    def shell(self, arguments):
        environment = dict(os.environ, TRIREME=TRIREME, HOME=self.folder.name, TERM='dumb',
                           PATH=os.path.dirname(TRIREME) + ':' + os.environ['PATH'])
        result = run(arguments, cwd=self.folder.name, env=environment)
        self.assertEqual((result.returncode, result.stderr), (0, ''), result.stdout)
        return result.stdout.splitlines()

    def test_doc(self):
        now = run([TRIREME, 'man', '--markdown']).stdout
        with open(PAGE, encoding='utf-8') as file:
            committed = file.read()
        if now != committed:
            print(''.join(difflib.unified_diff(committed.splitlines(True), now.splitlines(True), 'docs/cli.md', 'trireme')))
            self.fail('docs/cli.md is not what this trireme says of itself. Write it anew and commit it: '
                      'ninja -C build/release cli_doc')

    def test_exit_codes(self):
        told = re.findall(r'^ +(\d+)  ', run([TRIREME, '--help']).stdout.split('Exit codes:')[1], re.MULTILINE)
        with open(os.path.join(os.path.dirname(PAGE), 'operations', 'reference.md'), encoding='utf-8') as file:
            table = file.read().split('\n## Exit codes\n')[1].split('\n## ')[0]
        self.assertEqual(told, re.findall(r'^\| (\d+) \|', table, re.MULTILINE))

    def test_man_pages(self):
        folder = os.path.join(self.folder.name, 'man1')
        self.assertEqual(run([TRIREME, 'man', '--all', folder]).returncode, 0)
        pages = sorted(os.listdir(folder))
        self.assertIn('trireme.1', pages)
        self.assertIn('trireme-submit.1', pages)
        for page in pages:
            path = os.path.join(folder, page)
            # groff -ww tells of every macro and letter that it does not know.
            if shutil.which('groff'):
                result = run(['groff', '-man', '-Tutf8', '-ww', '-Wbreak', '-z', path])
                self.assertEqual((result.returncode, result.stderr), (0, ''), page)
            if shutil.which('mandoc'):
                result = run(['mandoc', '-T', 'lint', '-W', 'error', path])
                self.assertEqual(result.returncode, 0, result.stdout)
        if not shutil.which('groff'):
            self.skipTest(skips.NOT_INSTALLED + 'groff')

    def test_bash(self):
        answers = self.shell(['bash', '--norc', '-c', BASH + '''
          ask sub; ask submit "a"; ask logs --rank 1 --la; ask list --state fai; ask list --state = ca
          ask run --resume ""; ask completion ""; ask codec compress --out; ask list --state ""
          ask man sub; ask man codec "com"'''])
        self.assertEqual(answers[0], 'submit|')
        self.assertEqual(answers[1], 'a job.yaml|')
        self.assertEqual(answers[2], '--launcher|')
        self.assertEqual(answers[3], 'failed|')
        self.assertEqual(answers[4], 'cancelled|')
        self.assertEqual(answers[5], 'auto|two words|')
        self.assertEqual(answers[6], 'bash|zsh|fish|')
        self.assertEqual(len(answers[8].split('|')), 11)
        self.assertEqual(answers[9], 'submit|')
        self.assertEqual(answers[10], 'compress|')

    def test_zsh(self):
        if not shutil.which('zsh'):
            self.skipTest(skips.NOT_INSTALLED + 'zsh')
        # Widgets run in a terminal alone, so what zsh would be given is caught where it is.
        answers = self.shell(['zsh', '-f', '-c', '''
          compdef() { print "compdef $*" }; _describe() { print -l -- ${(P)3} }; _files() { print "files $*" }; compset() { : }
          source <($TRIREME completion zsh)
          ask() { words=($TRIREME "$@"); CURRENT=$#words; _trireme_complete }
          ask sub; ask run --resume ""'''])
        self.assertEqual(answers[:2], ['compdef _trireme_complete trireme', 'submit:queue a job'])
        self.assertEqual(answers[2:], ['auto:', 'files -/'])

    def test_fish(self):
        if not shutil.which('fish'):
            self.skipTest(skips.NOT_INSTALLED + 'fish')
        answers = self.shell(['fish', '--no-config', '-c', '''
          trireme completion fish | source
          complete -C 'trireme subm'; echo ==; complete -C 'trireme run --resume '; echo ==
          complete -C 'trireme list --state=fa\''''])
        first, second, third = '\n'.join(answers).split('\n==\n')
        self.assertEqual(first, 'submit\tqueue a job')
        self.assertIn('auto', second.splitlines())
        self.assertIn('two words/', second)
        self.assertEqual(third.strip(), '--state=failed')


if __name__ == '__main__':
    skips.main([sys.argv[0]] + sys.argv[3:])
