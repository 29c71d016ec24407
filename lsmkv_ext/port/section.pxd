# Sections: work of the control plane that holds locks or the writer's turn, or that others wait for.
#
# A collection may run a finalizer in the middle of a section, in any thread. A call of that finalizer must not wait: it could
# wait for its own thread, or take locks in the wrong order. Reads and short writes take no lock and work there. Calls that take
# locks raise instead, and a close is left to another thread.
#
# The depth is the thread's own. Work that one thread does for another, which waits, is a section of the first.

cdef void section_enter() noexcept
cdef void section_leave() noexcept
cdef int section_refuse() except -1         # raises Error inside a section
