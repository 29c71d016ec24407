"""Stores for tests: one in memory, and one that fails."""

import time

from lsmkv.errors import IOError
from lsmkv.repository.store import Stored


class MemoryStore:
    """Objects in a dict, which tests look into and damage."""

    url = "memory"

    def __init__(self):
        self.objects = {}
        self.modified = {}
        self.calls = []

    def call(self, what, name):
        self.calls.append((what, name))

    def list(self, prefix):
        self.call("list", prefix)
        return {n: Stored(len(d), self.modified[n]) for n, d in self.objects.items() if n.startswith(prefix)}

    def read(self, name):
        return b"".join(self.download(name))

    def write(self, name, data):
        self.call("write", name)
        self.keep(name, bytes(data))

    def keep(self, name, data):
        self.objects[name] = data
        self.modified[name] = time.time()

    def upload(self, path, name):
        self.call("upload", name)
        with open(path, "rb") as file:
            self.keep(name, file.read())

    def download(self, name):
        self.call("download", name)
        if name not in self.objects:
            raise IOError(2, "no such object", name)
        data = self.objects[name]
        for start in range(0, len(data), 1000):
            yield data[start : start + 1000]

    def delete(self, name):
        self.call("delete", name)
        self.objects.pop(name, None)


class FailingStore(MemoryStore):
    """Call number `fail_at` fails, or every call from it on. A failed call may have taken effect, as one whose answer
    was lost.
    """

    def __init__(self, objects):
        super().__init__()
        self.objects = dict(objects.objects)
        self.modified = dict(objects.modified)
        self.fail_at = None
        self.for_good = False
        self.took_effect = False

    def keep(self, name, data):
        if self.took_effect or not self.fails():
            super().keep(name, data)

    def delete(self, name):
        if self.fails():
            self.calls.append(("delete", name))
            if self.took_effect:
                self.objects.pop(name, None)
            self.check()
        super().delete(name)

    def fails(self):
        at = len(self.calls) - 1
        return self.fail_at is not None and (at == self.fail_at or (self.for_good and at >= self.fail_at))

    def check(self):
        if self.fails():
            raise IOError(5, "injected", self.url)

    def list(self, prefix):
        found = super().list(prefix)
        self.check()
        return found

    def write(self, name, data):
        super().write(name, data)
        self.check()

    def upload(self, path, name):
        super().upload(path, name)
        self.check()

    def download(self, name):
        for piece in super().download(name):
            self.check()
            yield piece
