from libc.stdlib cimport calloc, free

from lsmkv_ext.batch cimport ANY_OPERATION, OP_DELETE, OP_DELETE_RANGE, OpCursor, Operation, ops_begin, ops_next
from lsmkv_ext.memtable.memtable cimport Memtable
from lsmkv_ext.memtable.slots cimport MemSlot, MemSlots, slots_find
from lsmkv_ext.read.dead_spans cimport DeadSpans
from lsmkv_ext.read.read_state cimport ReadState


cdef int slots_make(MemSlots* slots, list trees) except -1:
    """Of trees that all have an active memtable."""
    cdef Tree tree
    cdef Py_ssize_t i
    slots.items = <MemSlot*>calloc(len(trees), sizeof(MemSlot))
    if slots.items == NULL:
        raise MemoryError("keyspaces")
    for i, tree in enumerate(trees):
        slots.items[i].keyspace = tree.keyspace
        slots.items[i].memtable = tree.active.c
    slots.count = len(trees)
    return 0


cdef void slots_free(MemSlots* slots) noexcept:
    free(slots.items)
    slots.items = NULL
    slots.count = 0


cdef void slots_update(MemSlots* slots, list trees) noexcept:
    """After a rotation."""
    cdef Tree tree
    cdef Py_ssize_t i
    for i in range(slots.count):
        tree = <Tree>trees[i]
        slots.items[i].memtable = tree.active.c


cdef class Forest:
    """The trees of a database, one for each keyspace."""

    def __cinit__(self, Tree default not None):
        self.trees = [default]

    def __dealloc__(self):
        slots_free(&self.slots)
        slots_free(&self.next_slots)

    cdef int replace(self, list trees, object states) except -1:
        cdef Tree tree
        cdef ReadState state
        cdef MemSlots slots
        cdef list _held = [tree.state for tree in self.trees]
        for tree, state in zip(trees, states, strict=True):
            tree.install(state)
        slots_make(&slots, trees)
        slots_free(&self.slots)
        self.slots = slots
        self.trees = trees
        self.changes += 1
        return 0

    cdef int prepare(self, list trees, dict levels, object drop, uint64_t ingested_seq) except -1:
        cdef Tree tree
        cdef uint64_t oldest = self.oldest_read if self.transactions else <uint64_t>-1
        for tree in trees:
            if tree.keyspace in levels:
                tree.prepare(levels[tree.keyspace], drop)
                tree.keep_flushed(drop, oldest)
                if ingested_seq and self.transactions:
                    tree.keep_ingested(levels[tree.keyspace], ingested_seq)
                else:
                    # Of a transaction that begins before the edit is published.
                    tree.next_forgotten = max(tree.next_forgotten, ingested_seq)
                if ingested_seq:
                    tree.next_state.spans = DeadSpans()     # the tables may have keys in the old ones
            elif any(memtable in drop for memtable in tree.state.memtables):
                tree.prepare(tree.state.levels, drop)
                tree.keep_flushed(drop, oldest)
        slots_free(&self.next_slots)
        if trees != self.trees:
            slots_make(&self.next_slots, trees)
        self.next_trees = trees
        return 0

    cdef int publish(self) noexcept:
        cdef Tree tree
        cdef list before = self.trees
        cdef bint others = self.next_slots.items != NULL
        self.changes += 1
        self.trees = self.next_trees
        self.next_trees = None
        if others:
            slots_free(&self.slots)
            self.slots = self.next_slots
            self.next_slots.items = NULL
            self.next_slots.count = 0
        for tree in self.trees:
            if tree.next_state is not None:
                tree.publish()
        for tree in self.trees:
            tree.discard()
        if others:
            for tree in before:
                if tree not in self.trees:
                    tree.close()        # dropped
        return 0

    cdef int discard(self) noexcept:
        cdef Tree tree
        for tree in self.trees:
            tree.discard()
        self.next_trees = None
        slots_free(&self.next_slots)
        return 0

    cdef int rotate(self, dict memtables, uint64_t number) except -1:
        cdef Tree tree
        try:
            for tree in self.trees:
                if tree.keyspace in memtables:
                    tree.stage_rotation(memtables[tree.keyspace])
        except BaseException:
            for tree in self.trees:
                tree.unstage_rotation()
            raise
        # Nothing fails from here on.
        self.changes += 1
        for tree in self.trees:
            if tree.rotated is not None:
                tree.rotate()
            else:
                tree.active.number = number
        slots_update(&self.slots, self.trees)
        return 0

    cdef int begin_transaction(self, uint64_t snapshot) noexcept:
        if self.transactions == 0:
            self.oldest_read = snapshot
        self.transactions += 1
        return 0

    cdef int end_transaction(self) noexcept:
        cdef Tree tree
        self.transactions -= 1
        if self.transactions == 0:
            for tree in self.trees:
                tree.forget_kept()
        return 0

    cdef bint has_spans(self, bint default_only) noexcept:
        cdef Tree tree
        for tree in self.trees:
            if tree.spans.known != NULL:
                return True
            if default_only:
                break
        return False

    cdef int cut_spans(self, const BatchC* b) noexcept:
        cdef OpCursor ops
        cdef Operation op
        if b.deletes == b.count or not self.has_spans(not b.keyspaces):
            return 0
        ops_begin(&ops, b.data, b.used, b.count, 0, ANY_OPERATION)
        while ops.left and ops_next(&ops, &op) == NULL:
            if op.op != OP_DELETE and op.op != OP_DELETE_RANGE:
                self.tree_of(op.keyspace).spans.cut(op.key, op.klen)
        return 0

    cdef int close(self) noexcept:
        cdef Tree tree
        for tree in self.trees:
            tree.close()
        self.next_trees = None
        slots_free(&self.slots)
        slots_free(&self.next_slots)
        return 0

    cdef uint64_t oldest_number(self):
        cdef Tree tree
        cdef ReadState state
        cdef Memtable memtable
        cdef uint64_t oldest = 0
        for tree in self.next_trees:
            state = tree.state if tree.next_state is None else tree.next_state
            for memtable in state.memtables:
                if memtable.number and (oldest == 0 or memtable.number < oldest):
                    oldest = memtable.number
        return oldest

    cdef uint64_t buffered(self) noexcept:
        cdef uint64_t total = 0
        cdef Py_ssize_t i
        for i in range(self.slots.count):
            total += self.slots.items[i].memtable.used
        return total

    cdef uint64_t default_ttl(self, uint32_t keyspace) noexcept:
        cdef MemSlot* slot = slots_find(&self.slots, keyspace)
        # The slots are in the order of the trees.
        return 0 if slot == NULL else (<Tree>self.trees[slot - self.slots.items]).default_ttl

    cdef Tree tree_of(self, uint32_t keyspace):
        cdef MemSlot* slot = slots_find(&self.slots, keyspace)
        return None if slot == NULL else <Tree>self.trees[slot - self.slots.items]
