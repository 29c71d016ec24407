"""zarr's own suite of stores, and arrays in a database."""

import pickle

import numpy
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu
from zarr.testing.store import StoreTests

import lsmkv
from lsmkv.integrations.zarr import LsmkvStore


class TestLsmkvStore(StoreTests[LsmkvStore, cpu.Buffer]):
    store_cls = LsmkvStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, tmp_path):
        lsmkv.open(tmp_path / "db").close()  # a read-only store creates none
        return {"path": str(tmp_path / "db")}

    async def set(self, store: LsmkvStore, key: str, value: Buffer) -> None:
        store._db().put(key.encode(), value.to_bytes())

    async def get(self, store: LsmkvStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(store._db()[key.encode()])

    def test_store_repr(self, store: LsmkvStore) -> None:
        assert repr(store) == f"LsmkvStore({store._path!r})"

    def test_store_supports_writes(self, store: LsmkvStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: LsmkvStore) -> None:
        assert store.supports_listing


def test_arrays_survive_a_reopen_and_are_read_beside_a_writer(path):
    data = numpy.arange(1_000_000, dtype="f8").reshape(1000, 1000)
    with LsmkvStore(path, compression=None) as store:
        group = zarr.create_group(store)
        array = group.create_array("a", shape=data.shape, chunks=(100, 100), dtype="f8")
        array[:] = data
        reader = zarr.open_group(LsmkvStore(path, read_only=True), mode="r")
        assert (reader["a"][:] == data).all()
        array[0, 0] = 7
        assert reader["a"][0, 0] == 7
        del group["a"]
        assert list(group) == []
        group.create_array("b", shape=(10,), dtype="i4")[:] = 3
    with LsmkvStore(path, read_only=True) as store:
        copy = pickle.loads(pickle.dumps(store))
        assert zarr.open_group(copy, mode="r")["b"][:].tolist() == [3] * 10
        copy.close()
    assert lsmkv.verify(path)
