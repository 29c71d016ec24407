# Sections: work of the control plane that holds locks or the writer's turn, or that others wait for.
#
# A garbage collection may run a finalizer in the middle of a section, in any thread. What the finalizer calls must not wait: it
# could wait for its own thread, or take locks in the wrong order. Reads and short writes take no lock and work as usual. Calls
# that take locks raise Error, and a close is left to another thread.
#
# Each thread counts its own depth. Work that a thread does for another one, which waits, is a section of the thread that does it.

cdef void section_enter() noexcept
cdef void section_leave() noexcept
cdef int section_refuse() except -1         # raises Error inside a section
