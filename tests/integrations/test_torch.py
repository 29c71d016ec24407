"""A dataset in worker processes of PyTorch."""

import os
import pickle
import struct

import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

import lsmkv
from lsmkv.integrations.torch import KeyValueDataset

N = 2000


def decode(key, value):
    worker = get_worker_info()
    return torch.tensor([int(key), struct.unpack("<q", value)[0], -1 if worker is None else worker.id, os.getpid()])


@pytest.fixture
def db(path):
    with lsmkv.open(path) as db:
        for i in range(N):
            db[b"%d" % i] = struct.pack("<q", i * i)
        yield db


def check(loader, workers):
    rows = torch.cat(list(loader))
    assert sorted(rows[:, 0].tolist()) == list(range(N))
    assert (rows[:, 1] == rows[:, 0] ** 2).all()
    assert set(rows[:, 2].tolist()) == set(workers)
    assert len(set(rows[:, 3].tolist())) == len(workers)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_worker_opens_the_database_beside_its_writer(db, path, method):
    data = KeyValueDataset(path, decode)
    assert len(data) == N and sorted(data.key(i) for i in range(N)) == sorted(db)
    assert data[0][1] == int(data.key(0)) ** 2  # so that the fork inherits an open handle
    check(DataLoader(data, batch_size=64, shuffle=True, num_workers=2, multiprocessing_context=method), {0, 1})
    check(DataLoader(data, batch_size=64), {-1})


def test_persistent_workers_over_several_epochs(db, path):
    loader = DataLoader(KeyValueDataset(path, decode), batch_size=100, num_workers=2, persistent_workers=True)
    for _ in range(3):
        check(loader, {0, 1})


def test_keys_of_ones_own_and_keyspaces(db, path):
    squares = db.keyspace("squares")
    squares[b"7"] = struct.pack("<q", 49)
    data = KeyValueDataset(path, decode, keyspace="squares")
    assert len(data) == 1 and pickle.loads(pickle.dumps(data))[0][1] == 49
    some = KeyValueDataset(path, decode, keys=[b"5", b"3", b"", b"no"])
    assert [some.key(i) for i in range(4)] == [b"5", b"3", b"", b"no"]
    assert some[0][1] == 25
    for index in (4, -1):
        with pytest.raises(IndexError):
            some[index]
    with pytest.raises(KeyError, match="no"):
        some[3]
    with pytest.raises(KeyError):
        some.__getitems__([0, 3])
