"""house.docs: every file a document names exists: in docs/architecture.md each `path/name.ext` in backquotes, in all
documents each relative link; every room has its README; and the rooms that docs/architecture.md draws as floors and lists
are those that cmake/Rooms.cmake declares, with no arrow upwards. Usage: docs.py SOURCE_ROOT ROOMS_FILE"""
import os
import re
import sys

import rooms
import tree

ARCHITECTURE = 'docs/architecture.md'
NAMED = re.compile(r'`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+)/?(?::\d+)?`')
LINK = re.compile(r'\[[^\]]*\]\(([^)\s]+)\)')


def has_readme(root, room):
    """A room inside a room may be described by the README above it."""
    above = os.path.join(os.path.dirname(room), 'README.md')
    return os.path.exists(os.path.join(root, room, 'README.md')) or (
        os.path.exists(os.path.join(root, above)) and os.path.basename(room) in tree.read(root, above))


def check(root, declared):
    faults = []
    if not os.path.exists(os.path.join(root, ARCHITECTURE)):
        faults.append(f'{ARCHITECTURE}: missing')
    else:
        names = NAMED.findall(tree.read(root, ARCHITECTURE))
        for name in names:
            if not name.startswith(('build/', 'runs/')) and not os.path.exists(os.path.join(root, name)):
                faults.append(f'{ARCHITECTURE}: names `{name}`, which does not exist')
        if len(names) < 20:
            faults.append(f'{ARCHITECTURE}: names {len(names)} files; the two walks need at least 20')
    for path in tree.files(root, ('.md',)):
        for link in LINK.findall(tree.read(root, path)):
            if '://' in link or link.startswith(('#', 'mailto:')):
                continue
            target = os.path.normpath(os.path.join(root, os.path.dirname(path), link.split('#')[0]))
            if not os.path.exists(target):
                faults.append(f'{path}: links to {link}, which does not exist')
    return faults + [f'{room}: no README.md, nor a word in that of the room above' for room in declared
                     if not has_readme(root, room)]


def floors(text):
    """Room to the number of its floor, of lines like ` 5  worker (link)   coordinator: daemon, agent`: rooms inside a room are
    named in brackets, where `pure` is no room, and a list goes on in the folder of its first. A line without a number belongs
    to the floor above it."""
    found = {}
    block = re.search(r'^## Floors\n.*?^```\n(.*?)^ beside:', text, re.M | re.S)
    floor = None
    for line in block.group(1).split('\n') if block else []:
        number, line = re.match(r' (\d?) *(.*)', line + '   ').groups()
        floor = int(number) if number else floor
        for chunk in re.split(r' {2,}', line.strip()):
            folder = None
            for path, inside in re.findall(r'([\w/]+:?)(?: ?\(([^)]*)\))?', chunk):
                if path.endswith(':'):
                    folder = path[:-1]
                    continue
                path = path if folder is None or '/' in path else f'{folder}/{path}'
                folder = os.path.dirname(path) if folder is None else folder
                for name in [path] + [f'{path}/{name}' for name in re.findall(r'\w+', inside) if name != 'pure']:
                    found[name] = floor
    return found


def listed_rooms(text):
    """The rooms of the table of rooms; those inside a room may be words in backquotes of its row. A program's room may be in
    the table of programs."""
    found = set()
    for room, words in re.findall(r'^\| `([\w/]+)` \|(.*)\|$', text, re.M):
        found |= {room} | {f'{room}/{word}' for word in re.findall(r'`(\w+)`', words)}
    for path in re.findall(r'^\| `[\w-]+` \(`([\w/.]+)`\) \|', text, re.M):
        found.add(os.path.dirname(path) if '.' in path else path)
    return found


def check_rooms(root, declared):
    """`declared`: room to the rooms that it names."""
    text = tree.read(root, ARCHITECTURE)
    drawn, listed = floors(text), listed_rooms(text)
    faults = [f'{ARCHITECTURE}: the floors lack {room}' for room in declared if room not in drawn]
    faults += [f'{ARCHITECTURE}: neither table lists {room}' for room in declared if room not in listed]
    faults += [f'{ARCHITECTURE}: the floors name {room}, which is no room' for room in drawn if room not in declared]
    faults += [f'{ARCHITECTURE}: the table of rooms names {room}, which is no room'
               for room in re.findall(r'^\| `([\w/]+/[\w/]+)` \|', text, re.M) if room not in declared]
    return faults + [f'{ARCHITECTURE}: {room} is on floor {drawn[room]} and includes {other} of floor {drawn[other]}'
                     for room, named in declared.items() for other in named
                     if drawn.get(other, 0) > drawn.get(room, drawn.get(other, 0))]


if __name__ == '__main__':
    with open(sys.argv[2], encoding='utf-8') as rooms_file:
        all_rooms = rooms.declared_rooms(rooms_file.read())
    tree.report('house.docs', check(sys.argv[1], all_rooms) + check_rooms(sys.argv[1], all_rooms),
                'every file named exists, and the rooms are those of cmake/Rooms.cmake')
