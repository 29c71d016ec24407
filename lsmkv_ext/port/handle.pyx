"""The handle of an open database, and the base of its dependents."""

from libc.stdlib cimport calloc, free

from lsmkv_ext.port.finalization cimport lsm_finalizing
from lsmkv_ext.port.pthread cimport pthread_atfork
from lsmkv_ext.port.wall_clock cimport clock_set_manual

from lsmkv_ext.errors import ClosedError, ForkError

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int us)


cdef void in_child() noexcept nogil:
    global fork_count
    fork_count += 1


fork_count = 0
if pthread_atfork(NULL, NULL, in_child) != 0:
    raise MemoryError("pthread_atfork")


cdef HandleC no_handle              # the handle of dependents that have not joined one
no_handle.refs = 1
no_handle.closed = True


cdef HandleC* handle_new() except NULL:
    cdef HandleC* handle = <HandleC*>calloc(1, sizeof(HandleC))
    if handle == NULL:
        raise MemoryError("handle")
    handle.refs = 1
    handle.born = fork_count
    return handle


cdef void handle_unref(HandleC* handle) noexcept:
    if handle != NULL:
        handle.refs -= 1
        if handle.refs == 0:
            clock_set_manual(&handle.clock, NULL)
            free(handle)


cdef int handle_refuse(const HandleC* handle) except -1:
    if handle.born != fork_count:
        raise ForkError("this handle was opened before a fork: open the database again in the child")
    raise ClosedError("the database is closed")


cdef int handle_close(HandleC* handle) except -1:
    cdef void* dependent
    handle.closed = True
    while handle.inflight:
        if lsm_finalizing():
            return False
        with nogil:
            usleep(100)
    while handle.first_dependent != NULL:
        # Borrowed: a finalizer may close the database while a dependent is deallocated, and a new reference would revive it.
        dependent = handle.first_dependent
        (<Dependent>dependent).leave()
        (<Dependent>dependent).release()
    return True


cdef class Dependent:
    """Base of snapshots, iterators and cursors: what is made from a database and ends with it."""

    def __cinit__(self, *args, **kwargs):
        self.handle = &no_handle
        no_handle.refs += 1

    cdef int join(self, HandleC* handle) except -1:
        self.leave()
        handle_unref(self.handle)
        self.handle = handle
        handle.refs += 1
        self.next_dependent = handle.first_dependent
        if handle.first_dependent != NULL:
            (<Dependent>handle.first_dependent).prev_dependent = <void*>self
        handle.first_dependent = <void*>self
        return 0

    cdef void release(self) noexcept:
        pass

    cdef void leave(self) noexcept:
        if self.prev_dependent != NULL:
            (<Dependent>self.prev_dependent).next_dependent = self.next_dependent
        elif self.handle.first_dependent == <void*>self:
            self.handle.first_dependent = self.next_dependent
        if self.next_dependent != NULL:
            (<Dependent>self.next_dependent).prev_dependent = self.prev_dependent
        self.next_dependent = NULL
        self.prev_dependent = NULL

    def __dealloc__(self):
        self.leave()
        handle_unref(self.handle)
