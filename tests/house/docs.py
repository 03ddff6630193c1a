"""house.docs: every file a document names exists: in docs/architecture.md each `path/name.ext` in backquotes, in all
documents each relative link; and every room has its README. Usage: docs.py SOURCE_ROOT ROOMS_FILE"""
import os
import re
import sys

import rooms
import tree

NAMED = re.compile(r'`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+)/?(?::\d+)?`')
LINK = re.compile(r'\[[^\]]*\]\(([^)\s]+)\)')


def has_readme(root, room):
    """A room inside a room may be described by the README above it."""
    above = os.path.join(os.path.dirname(room), 'README.md')
    return os.path.exists(os.path.join(root, room, 'README.md')) or (
        os.path.exists(os.path.join(root, above)) and os.path.basename(room) in tree.read(root, above))


def check(root, declared):
    faults = []
    architecture = 'docs/architecture.md'
    if not os.path.exists(os.path.join(root, architecture)):
        faults.append(f'{architecture}: missing')
    else:
        names = NAMED.findall(tree.read(root, architecture))
        for name in names:
            if not name.startswith(('build/', 'runs/')) and not os.path.exists(os.path.join(root, name)):
                faults.append(f'{architecture}: names `{name}`, which does not exist')
        if len(names) < 20:
            faults.append(f'{architecture}: names {len(names)} files; the two walks need at least 20')
    for path in tree.files(root, ('.md',)):
        for link in LINK.findall(tree.read(root, path)):
            if '://' in link or link.startswith(('#', 'mailto:')):
                continue
            target = os.path.normpath(os.path.join(root, os.path.dirname(path), link.split('#')[0]))
            if not os.path.exists(target):
                faults.append(f'{path}: links to {link}, which does not exist')
    return faults + [f'{room}: no README.md, nor a word in that of the room above' for room in declared
                     if not has_readme(root, room)]


if __name__ == '__main__':
    with open(sys.argv[2], encoding='utf-8') as rooms_file:
        all_rooms = rooms.declared_rooms(rooms_file.read())
    tree.report('house.docs', check(sys.argv[1], all_rooms), 'every file named exists')
