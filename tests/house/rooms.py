"""house.rooms: every #include of a room is one the room declared in cmake/Rooms.cmake, and every declared one is used;
a source file includes the header of its name first.
Usage: rooms.py SOURCE_ROOT ROOMS_FILE; ROOMS_FILE holds lines `room:room;room` written by CMake."""
import os
import re
import sys

import tree

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def declared_rooms(text):
    """Room to the list of rooms it names. A program and a library may share a folder: their arrows are joined."""
    rooms = {}
    for line in text.split('\n'):
        if line.strip():
            room, _, named = line.strip().partition(':')
            rooms.setdefault(room, [])
            rooms[room] += [other for other in named.split(';') if other]
    return rooms


def room_of_include(path):
    """The room whose header this is, or None for a library's."""
    if path.startswith('trireme/v1/'):
        return 'proto/services' if path.endswith('.grpc.pb.h') else 'proto'
    return os.path.dirname(path) if path.split('/')[0] in tree.OUR_ROOTS else None


def own_header_faults(root, path, text):
    """A header compiles alone when its source file does, if that includes it before anything else."""
    header = re.sub('[.]cc$', '.h', path)
    if header == path or not os.path.exists(os.path.join(root, header)):
        return []
    first = re.search(r'^\s*#\s*include\s+["<]([^">]+)', text, re.M)
    return [] if first and first.group(1) == header else [f'{path}: includes "{header}" not first']


def check(root, rooms):
    faults = []
    used = {room: set() for room in rooms}
    populated = set()
    for path in tree.files(root, tree.SOURCE_SUFFIXES):
        room = os.path.dirname(path)
        in_tests = path.startswith('tests/')
        if not in_tests and room not in rooms:
            faults.append(f'{path}: its folder is no declared room; declare it in cmake/Rooms.cmake')
            continue
        populated.add(room)
        text = tree.read(root, path)
        faults += own_header_faults(root, path, text)
        for number, line in enumerate(text.split('\n'), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            where, include = f'{path}:{number}', match.group(1)
            if '..' in include.split('/'):
                faults.append(f'{where}: includes "{include}"; write the path from the repository root')
                continue
            if '/' not in include:
                faults.append(f'{where}: includes "{include}" without its folder; write the path from the root')
                continue
            other = room_of_include(include)
            if other is None or other == room or in_tests:
                continue
            if other.startswith('tests/') or other == 'tests':
                faults.append(f'{where}: includes "{include}"; only tests may include tests')
            elif other not in rooms[room]:
                faults.append(f'{where}: {room} includes {other}, which it does not declare (cmake/Rooms.cmake)')
            used[room].add(other)
    for room, named in rooms.items():
        if room in ('proto', 'proto/services'):
            continue
        if room not in populated:
            faults.append(f'{room}: declared, but has no source files')
            continue
        for other in named:
            if other not in used[room]:
                faults.append(f'{room}: declares {other} but includes nothing of it')
    return faults


def main():
    root, rooms_file = sys.argv[1:]
    with open(rooms_file, encoding='utf-8') as file:
        rooms = declared_rooms(file.read())
    tree.report('house.rooms', check(root, rooms), f'{len(rooms)} rooms keep their arrows')


if __name__ == '__main__':
    main()
