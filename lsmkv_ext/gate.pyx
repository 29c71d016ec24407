from libc.stdlib cimport calloc, free

from lsmkv_ext.errors import ClosedError, ForkError

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept, void (*parent)() noexcept, void (*child)() noexcept)

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int us)


cdef void in_child() noexcept nogil:
    global fork_count
    fork_count += 1


fork_count = 0
if pthread_atfork(NULL, NULL, in_child) != 0:
    raise MemoryError("pthread_atfork")


cdef GateC nowhere              # of children that no database has made
nowhere.refs = 1
nowhere.closed = True


cdef GateC* gate_new() except NULL:
    cdef GateC* gate = <GateC*>calloc(1, sizeof(GateC))
    if gate == NULL:
        raise MemoryError("gate")
    gate.refs = 1
    gate.born = fork_count
    return gate


cdef void gate_unref(GateC* gate) noexcept:
    if gate != NULL:
        gate.refs -= 1
        if gate.refs == 0:
            free(gate)


cdef int gate_refuse(const GateC* gate) except -1:
    if gate.born != fork_count:
        raise ForkError("this handle was opened before a fork: open the database again in the child")
    raise ClosedError("the database is closed")


cdef int gate_close(GateC* gate) except -1:
    cdef Child child
    gate.closed = True
    while gate.inflight:
        with nogil:
            usleep(100)
    while gate.first_child != NULL:
        child = <Child>gate.first_child
        gate.first_child = child.next_child
        if gate.first_child != NULL:
            (<Child>gate.first_child).prev_child = NULL
        child.next_child = NULL
        child.prev_child = NULL
        child.let_go()
    return 0


cdef class Child:
    """Something made from a database that ends with it."""

    def __cinit__(self, *args, **kwargs):
        self.gate = &nowhere
        nowhere.refs += 1

    cdef int join(self, GateC* gate) except -1:
        self.leave()
        gate_unref(self.gate)
        self.gate = gate
        gate.refs += 1
        self.next_child = gate.first_child
        if gate.first_child != NULL:
            (<Child>gate.first_child).prev_child = <void*>self
        gate.first_child = <void*>self
        return 0

    cdef void let_go(self) noexcept:
        pass

    cdef void leave(self) noexcept:
        if self.prev_child != NULL:
            (<Child>self.prev_child).next_child = self.next_child
        elif self.gate.first_child == <void*>self:
            self.gate.first_child = self.next_child
        if self.next_child != NULL:
            (<Child>self.next_child).prev_child = self.prev_child
        self.next_child = NULL
        self.prev_child = NULL

    def __dealloc__(self):
        self.leave()
        gate_unref(self.gate)
