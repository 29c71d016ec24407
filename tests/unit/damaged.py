"""Keys and damage for the tests of verify, repair and destroy."""


def key(i):
    return b"key%06d" % i


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 0x40
    file.write_bytes(bytes(data))
