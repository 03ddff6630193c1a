"""An own reader of TensorBoard's event files: frames with their checksums, and the few fields of tensorflow's Event that
scalars need. Written from the formats' descriptions, not from the writer."""
import glob
import struct

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82f63b78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def masked_crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xff] ^ crc >> 8
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def frames(data):
    """The records; a torn one or a wrong checksum is an error."""
    at = 0
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        head_crc, = struct.unpack_from("<I", data, at + 8)
        record = data[at + 12:at + 12 + length]
        crc, = struct.unpack_from("<I", data, at + 12 + length)
        if head_crc != masked_crc32c(data[at:at + 8]) or crc != masked_crc32c(record):
            raise ValueError(f"wrong checksum in the record at byte {at}")
        yield record
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """[(number, value)] of a protobuf message."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        found.append((key >> 3, value))
    return found


def scalars_of(folder):
    """({tag: {step: value}}, files) of the event files of a folder, read in the order of their names; a step that comes
    twice is an error."""
    found, paths = {}, sorted(glob.glob(folder + "/events.out.tfevents.*"))
    for path in paths:
        with open(path, "rb") as file:
            records = list(frames(file.read()))
        if dict(fields(records[0])).get(3) != b"brain.Event:2":
            raise ValueError(f"{path} does not begin with its version")
        for record in records[1:]:
            event = dict(fields(record))
            for number, value in fields(event.get(5, b"")):
                entry = dict(fields(value))
                tag, step = entry[1].decode(), event[2]
                if number != 1 or step in found.setdefault(tag, {}):
                    raise ValueError(f"{path}: {tag} of step {step} comes twice")
                found[tag][step] = entry[2]
    return found, paths
