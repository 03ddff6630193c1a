"""house.classes: classes of at most 12 public methods, but those that docs/adr/0026 names, each with no more than it says.
Usage: classes.py SOURCE_ROOT"""
import re
import sys

import tree

METHODS = 12
RECORD = 'docs/adr/0026-classes-that-are-a-surface.md'
# A row of its table: | `Name` | file | 20 | why |
ROW = re.compile(r'^\| `(\w+)` \| `([\w/.]+)` \| (\d+) \|', re.M)
HEAD = re.compile(r'\b(class|struct)\s+(?:\[\[\w+\]\]\s+)?(\w+)(?:\s+final)?(?:\s*:[^:;{][^;{]*)?\s*\{')
ACCESS = re.compile(r'\b(public|protected|private)\s*:')
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


def body_of(text, opening):
    """What stands between the brace at `opening` and its own end."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {'{': 1, '}': -1}.get(text[at], 0)
        if depth == 0:
            return text[opening + 1:at]
    return text[opening + 1:]


def statements(body):
    """Declarations of a class's own body, each with what its braces hold left out."""
    flat, depth, statement = [], 0, ''
    for letter in body:
        if letter == '{':
            depth += 1
        if depth == 0:
            statement += letter
        if letter == '}':
            depth -= 1
        if depth == 0 and letter in ';}':
            flat.append(statement.strip() + (';' if letter == '}' else ''))
            statement = ''
    return flat


def is_method(statement, name):
    """Overloads count each; constructors, the destructor, operators, and what is passed on by `using` do not."""
    if re.match(r'(friend|using|typedef|static_assert|enum|class|struct|template\s*<[^>]*>\s*(class|struct))\b', statement):
        return False
    found = re.search(r'([~\w]+)\s*\(', re.sub(r'^(ABSL_\w+\([^)]*\)|\[\[[^\]]*\]\])\s*', '', statement))
    if not found or 'operator' in statement.split('(')[0] or '=' in statement.split('(')[0]:
        return False
    return found.group(1) not in (name, '~' + name) and ' ' in statement.split('(')[0].strip()


def methods(text):
    """[(class, public methods)] of a header."""
    text = COMMENT.sub(lambda found: '""' if found.group(0).startswith('"') else ' ', text)
    counted = []
    for head in HEAD.finditer(text):
        public, count = head.group(1) == 'struct', 0
        for statement in statements(body_of(text, head.end() - 1)):
            for access in ACCESS.finditer(statement):
                public = access.group(1) == 'public'
            count += public and is_method(ACCESS.sub('', statement).strip(), head.group(2))
        counted.append((head.group(2), count))
    return counted


def check(root):
    paths = [path for path in tree.files(root, ('.h',)) if not path.startswith('tests/')]
    try:
        excused = {(name, path): int(most) for name, path, most in ROW.findall(tree.read(root, RECORD))}
    except FileNotFoundError:
        excused = {}
    faults = []
    for path in paths:
        for name, count in methods(tree.read(root, path)):
            most = max(METHODS, excused.pop((name, path), 0))
            if count > most:
                faults.append(f'{path}: {name} has {count} public methods; at most {most}, or a row of {RECORD}')
    return faults + [f'{RECORD}: there is no {name} in {path}' for name, path in excused]


if __name__ == '__main__':
    tree.report('house.classes', check(sys.argv[1]), 'classes have as many public methods as agreed')
