"""Plants one fault for each house check in a small tree and sees the check name it; the same tree without it is clean."""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import classes
import docs
import format as formatting
import install
import links
import listed
import parsed_headers
import proof
import python_names
import rooms
import single_files
import sizes
import tidy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

ROOMS = {'proto': [], 'runtime/base': [], 'runtime/spec': ['runtime/base'], 'runtime/plan': ['runtime/base', 'runtime/spec']}
FILES = {
    'runtime/base/check.h': '// Checks.\n#pragma once\n',
    'runtime/base/README.md': 'base\n',
    'runtime/spec/job.h': '// Jobs.\n#pragma once\n#include "absl/status/status.h"\n#include "runtime/base/check.h"\n',
    'runtime/spec/README.md': 'spec\n',
    'runtime/plan/planner.cc': '// Plans.\n#include "runtime/base/check.h"\n#include "runtime/spec/job.h"\n',
    'runtime/plan/README.md': 'plan, see [base](../base/README.md)\n',
    'proto/README.md': 'proto\n',
    'docs/architecture.md': '''| `planner` (`runtime/plan/planner.cc`) | plans |
## Floors
```
 1  runtime/plan (pure)   runtime/base, spec
 0  proto (services)
 beside: docs
```
| room | one sentence |
| `proto` | messages; `services` |
| `runtime/base` | base |
| `runtime/spec` | jobs |
''' + '`runtime/base/check.h`\n' * 20,
}


class Planted(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix='trireme_house_')
        for path, text in FILES.items():
            self.write(path, text)

    def tearDown(self):
        shutil.rmtree(self.root)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, 'w', encoding='utf-8') as file:
            file.write(text)

    def append(self, path, text):
        self.write(path, FILES.get(path, '') + text)

    def only(self, faults, *words):
        self.assertEqual(len(faults), 1, faults)
        for word in words:
            self.assertIn(word, faults[0])

    def test_clean_tree(self):
        self.assertEqual(rooms.check(self.root, ROOMS), [])
        self.assertEqual(sizes.check(self.root), [])
        self.assertEqual(docs.check(self.root, ROOMS), [])
        self.assertEqual(docs.check_rooms(self.root, {**ROOMS, 'proto/services': ['proto']}), [])

    def test_own_header_not_first(self):
        self.write('runtime/plan/planner.h', '// Plans.\n')
        self.append('runtime/plan/planner.cc', '#include "runtime/plan/planner.h"\n')
        self.only(rooms.check(self.root, ROOMS), 'planner.cc', 'not first')

    def test_rooms_file(self):
        self.assertEqual(rooms.declared_rooms('\nproto:\na/b:proto\na/c:proto;a/b\n'),
                         {'proto': [], 'a/b': ['proto'], 'a/c': ['proto', 'a/b']})

    def test_undeclared_include(self):
        self.append('runtime/base/check.h', '#include "runtime/spec/job.h"\n')
        self.only(rooms.check(self.root, ROOMS), 'runtime/base/check.h:3', 'runtime/spec')

    def test_undeclared_proto(self):
        self.append('runtime/base/check.h', '#include "trireme/v1/plan.pb.h"\n')
        self.only(rooms.check(self.root, ROOMS), 'includes proto')

    def test_unused_arrow(self):
        self.only(rooms.check(self.root, {**ROOMS, 'runtime/spec': ['runtime/base', 'proto']}), 'declares proto')

    def test_upward_path(self):
        self.append('runtime/spec/job.h', '#include "../base/check.h"\n')
        self.only(rooms.check(self.root, ROOMS), 'job.h:5', 'from the repository root')

    def test_include_of_tests(self):
        self.write('tests/model.h', '// Model.\n#pragma once\n')
        self.append('runtime/spec/job.h', '#include "tests/model.h"\n')
        self.only(rooms.check(self.root, ROOMS), 'only tests')

    def test_undeclared_room(self):
        self.write('runtime/attic/old.h', '// Old.\n#pragma once\n')
        self.only(rooms.check(self.root, ROOMS), 'no declared room')

    def test_empty_room(self):
        self.only(rooms.check(self.root, {**ROOMS, 'runtime/moon': []}), 'no source files')

    def test_long_file(self):
        self.append('runtime/base/check.h', '\n' * 600)
        self.only(sizes.check(self.root), '602 lines')

    def test_class_of_many_methods(self):
        methods = ''.join(f'  int M{i}(int of) const {{ return of; }}\n' for i in range(12))
        head = 'class Door {\n public:\n  explicit Door(int);\n  ~Door();\n  bool operator==(const Door&) const;\n'
        tail = ' private:\n  void Turn();\n  int knobs_ = Count();\n};\n'
        self.append('runtime/base/check.h', head + methods + tail)
        self.assertEqual(classes.check(self.root), [])
        self.write('runtime/base/check.h', FILES['runtime/base/check.h'] + head + methods + '  void Close();\n' + tail)
        self.only(classes.check(self.root), 'check.h', 'Door has 13')
        row = '| `Door` | `runtime/base/check.h` | {} | why |\n'
        self.write(classes.RECORD, row.format(13))
        self.assertEqual(classes.check(self.root), [])
        self.write(classes.RECORD, row.format(13) + row.format(13).replace('Door', 'Gate'))
        self.only(classes.check(self.root), 'no Gate')

    def test_long_line(self):
        self.append('runtime/base/check.h', '// ' + 'a' * 98 + '\n')
        self.only(sizes.check(self.root), '101 columns')

    def test_unfinished_word(self):
        self.append('runtime/base/check.h', '// TO' + 'DO: think\n')
        self.only(sizes.check(self.root), 'check.h:3', 'unfinished')

    def test_empty_name(self):
        self.write('runtime/base/misc.h', FILES['runtime/base/check.h'])
        self.only(sizes.check(self.root), 'says nothing')

    def test_condition(self):
        self.append('runtime/base/check.h', '#ifdef FAST\n#endif\n')
        self.only(sizes.check(self.root), 'conditional')

    def test_environment_knob(self):
        self.append('runtime/base/check.h', 'const char* x = getenv("TRIREME_FAST");\n')
        self.only(sizes.check(self.root), 'knob')

    def test_loop_that_throws(self):
        self.append('runtime/base/check.h', 'for (auto& e : std::filesystem::directory_iterator(path, error)) {}\n')
        self.only(sizes.check(self.root), 'throws')

    def test_wait_by_the_time_of_day(self):
        self.append('runtime/base/check.h', 'mutex.AwaitWithTimeout(condition, time);\n')
        self.only(sizes.check(self.root), 'time of day')

    def test_case_left_out_without_a_word(self):
        beginning = '// A test.\nTEST_CASE("one",\n          "[fast]") {\n  const bool here = Look();\n'
        for text, line in (('  if (!here) return;\n', 5), ('  if (!here) {\n    Close();\n    return;\n  }\n', 7),
                           ('  const auto say = [&] {\n    Say();\n  };\n  return;\n', 8),
                           ('  for (int i = 0; i < 3; ++i) {\n    if (i > 1) return;\n  }\n', 6)):
            self.write('tests/base/one_test.cc', beginning + text + '  CHECK(here);\n}\n')
            self.only(sizes.check(self.root), f'one_test.cc:{line}:', 'ends early')
        for text in ('  const auto say = [&] {\n    if (!here) return;\n    Say();\n  };\n',
                     '  ForEach(a,\n          [&] {\n            if (!here) {\n              return;\n            }\n          });\n',
                     '}\n\nvoid After() {\n  return;\n'):
            self.write('tests/base/one_test.cc', beginning + text + '}\n')
            self.assertEqual(sizes.check(self.root), [])
        self.write('tests/base/one_test.cc', beginning + '  if (!here) WARN("skipped");\n}\n')
        self.only(sizes.check(self.root), 'one_test.cc:5:', 'passes as green')

    def test_header_without_guard_or_purpose(self):
        self.write('runtime/base/bare.h', 'int f();\n')
        self.assertEqual(len(sizes.check(self.root)), 2)

    def test_purpose_of_the_header_is_that_of_its_source(self):
        self.write('runtime/base/part.cc', 'int f() { return 1; }\n')
        self.only(sizes.check(self.root), 'part.cc')
        self.write('runtime/base/part.h', '// Says f.\n#pragma once\nint f();\n')
        self.assertEqual(sizes.check(self.root), [])

    def test_missing_file_in_architecture(self):
        self.append('docs/architecture.md', '`runtime/base/gone.h`\n')
        self.only(docs.check(self.root, ROOMS), 'gone.h')

    def test_broken_link(self):
        self.append('runtime/plan/README.md', '[x](../moon/README.md)\n')
        self.only(docs.check(self.root, ROOMS), '../moon/README.md')

    def test_room_without_readme(self):
        os.remove(os.path.join(self.root, 'proto/README.md'))
        self.only(docs.check(self.root, ROOMS), 'proto: no README.md')

    def test_room_inside_a_room(self):
        inner = {**ROOMS, 'runtime/base/tables': []}
        self.only(docs.check(self.root, inner), 'runtime/base/tables')
        self.append('runtime/base/README.md', 'and its tables\n')
        self.assertEqual(docs.check(self.root, inner), [])

    def test_rooms_of_the_architecture(self):
        whole = {**ROOMS, 'proto/services': ['proto']}
        for room in ('runtime/moon', 'proto/moon', 'moon'):
            with self.subTest(room):
                faults = docs.check_rooms(self.root, {**whole, room: []})
                self.assertEqual(faults, [f'docs/architecture.md: the floors lack {room}',
                                          f'docs/architecture.md: neither table lists {room}'])
        self.only(docs.check_rooms(self.root, {**whole, 'proto': ['runtime/base']}),
                  'proto is on floor 0 and includes runtime/base of floor 1')
        text = FILES[docs.ARCHITECTURE]
        for words, fault in (('| `runtime/spec` | jobs |', 'lists runtime/spec'), (', spec', 'lack runtime/spec'),
                             ('; `services`', 'lists proto/services'), (' (services)', 'lack proto/services'),
                             ('| `planner` (`runtime/plan/planner.cc`)', 'lists runtime/plan')):
            with self.subTest(words):
                self.assertEqual(text.count(words), 1)
                self.write(docs.ARCHITECTURE, text.replace(words, ''))
                self.only(docs.check_rooms(self.root, whole), fault)
        self.write(docs.ARCHITECTURE, text.replace(', spec', ', spec, moon') + '| `runtime/sun` | shines |\n')
        found = docs.check_rooms(self.root, whole)
        self.assertEqual([re.search(r'runtime/\w+, .*', fault)[0] for fault in found],
                         ['runtime/moon, which is no room', 'runtime/sun, which is no room'])

    def test_claims(self):
        """Selectors as Catch2 2.13 reads them, and ctest's names."""
        for path, text in (('cmake/Tests.cmake', 'trireme_tests(a ROOMS b)\ntrireme_tests(a/b)\ntrireme_mpi_test(test_mpi c ROOMS a)\n'),
                           ('deploy/test', '#   whole    all\n'),
                           ('tests/a/one.cc', 'TEST_CASE("moon: it is round", "[.sky]") {}\nTEST_CASE("sun: it "\n  "shines") {}\n'),
                           ('tests/a/x86/two.cc', 'TEST_CASE("stars") {}\n'), ('tests/a/b/three.cc', 'TEST_CASE("sea: deep") {}\n')):
            self.write(path, text)
        ctest = 'add_test([=[job.ends]=] "x")\nadd_test(mpi.2_ranks.late "x")\nadd_test([==[job.begins]==] "x")\n'
        head = '## Sharpened claims\n| claim | test | planted |\n|---|---|---|\n'
        for cell, fault in (
                ('`test_a` "moon: *", "SUN: it shines", "stars", "*it*", `test_a_b` "*deep"', None),
                ('`job.ends`, `mpi.*late`, `deploy/test whole`, `test_a`', None),
                ('`test_a` "moon: * round"', 'test_a has no case "moon: * round"'),
                ('`test_a` "sea: *"', 'test_a has no case "sea: *", but test_a_b has'),
                ('`test_a` "sun: it"', 'test_a has no case "sun: it"'),
                ('"stars"', '"stars" follows no program'),
                ('`job.end`', '`job.end` is neither'), ('`test_c`', '`test_c` is neither'),
                ('`deploy/test half`', 'no part half'), ('test_a', 'is not a list'), ('', 'is not a list')):
            with self.subTest(cell):
                self.write(proof.PROOF, head + f'| it holds | {cell} | a \\| b |\n')
                faults, _ = proof.check(self.root, ctest)
                self.only(faults, fault) if fault else self.assertEqual(faults, [])
        self.write(proof.PROOF, head + '| it holds | `job.ends` |\n| it holds | `job.ends` | |\n')
        self.only(proof.check(self.root, ctest)[0], 'a row of 2 columns')
        self.write(proof.PROOF, head)
        self.only(proof.check(self.root, ctest)[0], 'no table')
        self.write(proof.PROOF, head + '| it holds | `job.ends` | |\n')
        for command, fault in (('`B/test_a "moon*,stars"`, `test_a "[sky]"`, `build/release/bin/test_mpi`', None),
                               ('`ctest --preset x -R "job.(ends\\|begins)\\|shines"`, `ctest -R late --verbose`', None),
                               ('`B/test_a "moon*,mars"`', 'no case "mars"'), ('`test_a "[sea]"`', 'no case "[sea]"'),
                               ('`B/test_d`', 'no program test_d'),
                               ('`ctest -R "job.(ends\\|rests)"`', 'no test "job.rests"'), ('`ctest -R early`', 'no test "early"')):
            with self.subTest(command):
                self.write('docs/performance.md', f'| speed | {command} |\n')
                faults, _ = proof.check(self.root, ctest)
                self.only(faults, fault) if fault else self.assertEqual(faults, [])
        self.write('CMakePresets.json', '''{"testPresets": [
            {"name": "base", "filter": {"include": {"label": "^(fast|slow)$"}, "exclude": {"label": "^slow$", "name": "ends"}}},
            {"name": "quick", "inherits": "base"}, {"name": "slow", "filter": {"include": {"label": "^slow$"}}}, {"name": "all"}]}''')
        labels = 'set_tests_properties([=[job.ends]=] PROPERTIES  LABELS "fast" TIMEOUT "1")\n' \
                 'set_tests_properties([==[job.begins]==] PROPERTIES  LABELS "fast;slow" TIMEOUT "1")\n'
        for command, fault in (('--preset slow -R job.begins', None), ('--preset all -R job', None), ('--preset quick -R moon', None),
                               ('-R job.begins', None), ('--preset quick -R job.begins', 'quick leaves out all tests that "job.begins"'),
                               ('--preset quick -R job.ends', 'quick leaves out'), ('--preset slow -R job.ends -V', 'slow leaves out')):
            with self.subTest(command):
                self.write('docs/performance.md', f'`ctest {command}`\n')
                faults, _ = proof.check(self.root, ctest + labels)
                self.only(faults, fault) if fault else self.assertEqual(faults, [])

    def test_listed(self):
        self.write('tests/a/sea_test.py', 'class Sea:\n    def setUp(self): pass\n    def test_deep(self): pass\n    def test_blue(self): pass\n')
        run = 'add_test([=[sea.{1}]=] "python3" "/x/tests/a/sea_test.py" "/x/bin"{0})\n'
        both = run.format(' "Sea.test_deep"', 'deep') + run.format(' "Sea.test_blue"', 'blue')
        for text, faults in ((both, []), (run.format('', 'all'), []), (run.format(' "Sea"', 'all'), []),
                             (run.format(' "Sea.test_deep"', 'deep'), ['blue']), ('', ['deep', 'blue']),
                             (both.replace('a/sea', 'b/sea'), ['deep', 'blue'])):
            with self.subTest(text):
                found, count = listed.check(self.root, text)
                self.assertEqual(([re.search(r'Sea.test_(\w+)', fault)[1] for fault in found], count), (faults, 2))

    def test_format(self):
        program = formatting.clang_format()
        if program is None:
            self.skipTest(skips.NOT_INSTALLED + 'clang-format-14')
        self.write('.clang-format', 'BasedOnStyle: Google\n')
        self.assertEqual(formatting.check(self.root, program), [])
        self.append('runtime/base/check.h', 'int   x = 1 ;\n')
        self.only(formatting.check(self.root, program), 'runtime/base/check.h')

    def test_python_names(self):
        program = shutil.which('pyflakes3')
        if program is None:
            self.skipTest(skips.NOT_INSTALLED + 'pyflakes3')
        self.write('tests/some_test.py', 'import sys\nsys.exit(0)\n')
        self.assertEqual(python_names.check(self.root, program), [])
        self.append('tests/some_test.py', 'skips.main()\n')
        self.only(python_names.check(self.root, program), 'some_test.py')

    def test_data_plane_link(self):
        program = os.path.join(self.root, 'program')
        source = os.path.join(self.root, 'program.c')
        library = os.path.join(self.root, 'libcuda_fake.c')
        self.write('program.c', 'int mpi(void);\nint main(void) { return mpi(); }\n')
        self.write('libcuda_fake.c', 'int mpi(void) { return 0; }\n')
        shared = os.path.join(self.root, 'libcuda.so.1')
        subprocess.run(['cc', '-shared', '-fPIC', '-Wl,-soname,libcuda.so.1', library, '-o', shared], check=True)
        subprocess.run(['cc', source, shared, f'-Wl,-rpath,{self.root}', '-o', program], check=True)
        self.only(links.check([program]), 'libcuda.so.1')
        self.assertEqual(links.check([shared]), [])

    def test_links_of_what_is_not_there(self):
        self.only(links.check([os.path.join(self.root, 'absent')]), 'absent')

    def test_install_that_lacks_files(self):
        self.write('empty/cmake_install.cmake', '')
        self.assertGreater(len(install.check(os.path.join(self.root, 'empty'))), 0)

    def test_file_that_lacks_an_include(self):
        for name, text in (('whole', '#include <vector>\nstd::vector<int> whole;\n'), ('lacks', 'std::vector<int> lacks;\n')):
            self.write(f'runtime/base/{name}.cc', text)
            found = single_files.read('clang++-14', self.root, name,
                                      ['-std=c++20', '-c', os.path.join(self.root, f'runtime/base/{name}.cc')])
            self.assertEqual([fault for fault in found if 'lacks.cc' not in fault], [])
            self.assertEqual(bool(found), name == 'lacks')

    def test_file_that_another_could_lend_an_include(self):
        """The whole way of the target `single_files`: headers parsed once for the files that reach them, and for no others."""
        use = 'std::filesystem::path {0};\n'
        lacking = ('runtime/base/lacks.cc', 'runtime/base/part.cc')
        texts = {f'runtime/base/whole{i}.cc': '#include <filesystem>\n' + use.format(f'whole{i}') for i in range(4)}
        texts |= {'runtime/base/paths.h': '#pragma once\n#include <filesystem>\n',
                  'runtime/base/through.cc': '#include "runtime/base/paths.h"\n' + use.format('through'),
                  'runtime/base/lacks.cc': use.format('lacks'),
                  # Its own header must stand by itself.
                  'runtime/base/part.h': '#pragma once\nextern ' + use.format('part'),
                  'runtime/base/part.cc': '#include "runtime/base/part.h"\n#include <filesystem>\n' + use.format('part')}
        for path, text in texts.items():
            self.write(path, text)
        compiled = {path: ['-std=c++20', f'-I{self.root}'] for path in texts if path.endswith('.cc')}
        includes = parsed_headers.Includes([self.root])
        chosen = parsed_headers.choose({path: includes.foreign(os.path.join(self.root, path)) for path in compiled})
        # Else nothing could be lent, and the rest would show nothing.
        self.assertEqual([path for path in compiled if path not in lacking and 'filesystem' not in chosen[path]], [])
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            faults = single_files.faults_of('clang++-14', self.root, self.root, compiled, pool)
        for path in lacking:
            name = os.path.splitext(os.path.basename(path))[0] + '.'
            self.assertTrue([fault for fault in faults if f'/{name}' in fault and "'std'" in fault], (path, faults))
        self.assertEqual([fault for fault in faults if not any(name in fault for name in ('/lacks.cc', '/part.'))], [])

    def test_tidy(self):
        program = shutil.which('clang-tidy-14')
        if program is None:
            self.skipTest(skips.NOT_INSTALLED + 'clang-tidy-14')
        self.write('.clang-tidy', "Checks: '-*,modernize-use-nullptr'\nWarningsAsErrors: '*'\n")
        paths = [f'runtime/base/{name}.cc' for name in ('clean', 'null', 'other')]
        # The first and the last do not compile as one.
        for path, text in zip(paths, ('static int size = 1;\n', 'int* p = 0;\n', 'static long size = 1;\n')):
            self.write(path, '// Planted.\n' + text)
        commands = [{'directory': self.root, 'file': os.path.join(self.root, path), 'command': f'ccache c++ -O1 -o x.o -c {path}'}
                    for path in paths]
        self.write('build/compile_commands.json', json.dumps(commands))
        build = os.path.join(self.root, 'build')
        compiled = tidy.commands(self.root, build, ('runtime',))
        self.assertEqual(compiled, {path: ['-O1'] for path in paths})
        self.assertEqual(tidy.groups(compiled), [paths])
        self.only(tidy.tidy(program, self.root, build, paths, ['-O1']), 'null.cc', 'modernize-use-nullptr')


if __name__ == '__main__':
    skips.main(sys.argv[:1])
