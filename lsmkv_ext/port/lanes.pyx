"""Queues of background tasks, the idle threads that wait for them, and alarms. `lsmkv.background` has the threads.

GIL-protected: all fields. No method runs Python code or allocates an object that the garbage collector tracks. Each is
therefore atomic, and a finalizer may call it at any time. A lock could be held when a finalizer needs it, or stay held after an
interrupt, a fork, or the finalization of the interpreter.
"""
from libc.stdint cimport uint64_t

from lsmkv_ext.port.clock cimport lsm_now_ns

cdef extern from "pythread.h":
    ctypedef void* PyThread_type_lock
    ctypedef long long PY_TIMEOUT_T
    const int WAIT_LOCK
    unsigned long PyThread_get_thread_ident()
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait) nogil
    int PyThread_acquire_lock_timed(PyThread_type_lock lock, PY_TIMEOUT_T microseconds, int interruptible) nogil
    void PyThread_release_lock(PyThread_type_lock lock)

cdef uint64_t NEVER = <uint64_t>-1
cdef enum:
    MOST_RUNNERS = 64
# Longer sleeps are taken in pieces: a timed wait of Python's locks has a limit.
cdef uint64_t LONGEST_SLEEP_NS = 3_600_000_000_000


cdef class _Call:
    """Wakes the one thread that waits for it. A call before the wait is kept."""
    cdef PyThread_type_lock lock
    cdef bint waiting
    cdef bint called

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock is NULL:
            raise MemoryError
        PyThread_acquire_lock(self.lock, WAIT_LOCK)

    def __dealloc__(self):
        if self.lock is not NULL:
            PyThread_free_lock(self.lock)

    cdef void call(self) noexcept:
        self.called = True
        if self.waiting:
            self.waiting = False
            PyThread_release_lock(self.lock)

    cdef void wait(self, uint64_t ns) noexcept:
        """Returns when called, or after `ns` unless that is NEVER."""
        cdef PY_TIMEOUT_T microseconds
        if not self.called:
            self.waiting = True
            if ns == NEVER:
                with nogil:
                    PyThread_acquire_lock(self.lock, WAIT_LOCK)
            else:
                microseconds = ns // 1000 + 1
                with nogil:
                    PyThread_acquire_lock_timed(self.lock, microseconds, 0)
            # A call may have come between the timeout and the GIL: take the lock that it released.
            if not self.waiting:
                PyThread_acquire_lock(self.lock, 0)
            self.waiting = False
        self.called = False


cdef class Worker:
    """A thread of a lane."""
    cdef _Call call

    def __cinit__(self):
        self.call = _Call()

    def wait(self):
        """Wait until the lane has a task."""
        self.call.wait(NEVER)


cdef class TaskState:
    """Whether a task is due, queued, running, paused or closed. At most `limit` threads run it at once."""
    cdef readonly Lane lane
    cdef unsigned long runners[MOST_RUNNERS]    # the threads that run it
    cdef readonly int running
    cdef int limit
    cdef bint woken                 # a run was asked for and has not begun
    cdef bint paused                # after a failure, until the alarm
    cdef bint closed
    cdef bint queued
    cdef TaskState next_queued      # in the lane
    cdef TaskState next_alarm       # in the timer
    cdef uint64_t alarm             # when the timer wakes it, in ns; 0: it has none
    cdef _Call joiner               # called when a run of the closed task ends

    def __init__(self, Lane lane, int limit):
        self.lane = lane
        self.limit = min(limit, MOST_RUNNERS)
        self.joiner = _Call()

    cdef bint runnable(self) noexcept:
        return not self.paused and not self.closed and self.running < self.limit

    cdef int runner(self) noexcept:
        """The index of this thread among the runners, or -1."""
        cdef int i
        for i in range(self.running):
            if self.runners[i] == PyThread_get_thread_ident():
                return i
        return -1

    @property
    def expected(self):
        """Whether a thread runs the task or will come for it."""
        return self.running > 0 or (self.queued and self.lane.workers > 0)

    def offer(self, bint woken=True):
        """Queue the task if it is due, and call a thread for the queue. Return whether the caller has to start a thread, which
        is then already counted."""
        if woken:
            self.woken = True
        self.lane.push(self)
        return self.lane.summon()

    def begin(self):
        """Make this thread a runner if the task may run. Return whether it did."""
        if not self.runnable():
            return False
        self.enter()
        return True

    cdef void enter(self) noexcept:
        self.runners[self.running] = PyThread_get_thread_ident()
        self.running += 1
        self.woken = False

    def finish(self, double pause):
        """End this thread's run; allow none in the next `pause` seconds. Calling it twice is no error."""
        cdef int i = self.runner()
        if i >= 0:
            self.running -= 1
            self.runners[i] = self.runners[self.running]
        if self.closed:
            self.joiner.call()
        elif pause > 0:
            self.paused = True
            self.lane.timer.add(self, pause)
        self.lane.push(self)

    def wake_after(self, double seconds):
        """Let the timer wake the task in `seconds`, or earlier if an earlier alarm is set."""
        self.lane.timer.add(self, seconds)

    def hurry(self):
        """End a pause."""
        self.paused = False

    def close(self):
        """Allow no further run."""
        self.closed = True
        self.lane.timer.cancel(self)
        self.lane.withdraw(self)

    def join(self):
        """Wait until a closed task runs in no other thread. One thread may wait at a time."""
        while self.running > (self.runner() >= 0):
            self.joiner.wait(NEVER)


cdef class Lane:
    """The queue of the tasks that are due, and the threads that run them. At most one idle thread waits for more."""
    cdef readonly Timer timer
    cdef readonly int limit         # of threads
    cdef readonly int workers       # threads that run, or are being started
    cdef bint ended
    cdef TaskState first
    cdef TaskState last
    cdef Worker idle

    def __init__(self, Timer timer, int limit):
        self.timer = timer
        self.limit = limit

    cdef void push(self, TaskState task) noexcept:
        """Queues a task that is due."""
        if not task.woken or task.queued or not task.runnable():
            return
        task.queued = True
        if self.last is None:
            self.first = task
        else:
            self.last.next_queued = task
        self.last = task

    cdef bint summon(self) noexcept:
        """Calls a thread for the queue. Returns whether one has to be started, which is then already counted."""
        if self.first is None or self.call_idle():
            return False
        if self.workers >= self.limit or self.ended:
            return False
        self.workers += 1
        return True

    cdef bint call_idle(self) noexcept:
        """Wakes the idle thread. Returns whether there was one."""
        if self.idle is None:
            return False
        worker, self.idle = self.idle, None
        worker.call.call()
        return True

    cdef TaskState pop(self):
        task = self.first
        self.first = task.next_queued
        if self.first is None:
            self.last = None
        task.next_queued = None
        task.queued = False
        return task

    def take(self, Worker worker):
        """Return a task, which this thread now runs; or `worker`, which has to wait; or None if the thread has to end."""
        if self.idle is worker:
            self.idle = None
        while self.first is not None:
            task = self.pop()
            if task.woken and task.runnable():  # not if a waiting caller has run it (`Task.help`)
                task.enter()
                return task
        if self.ended or self.idle is not None:
            self.workers -= 1
            return None
        self.idle = worker
        return worker

    def raise_limit(self, int limit):
        self.limit = max(self.limit, limit)

    def not_started(self):
        """Take back the count of a thread that `offer` asked for and that did not start."""
        self.workers -= 1

    cdef void withdraw(self, TaskState task) noexcept:
        cdef TaskState other
        if not task.queued:
            return
        if self.first is task:
            self.pop()
            return
        other = self.first
        while other.next_queued is not task:
            other = other.next_queued
        other.next_queued = task.next_queued
        if self.last is task:
            self.last = other
        task.next_queued = None
        task.queued = False

    def end(self):
        """Let the threads end when the queue is empty."""
        self.ended = True
        self.call_idle()


cdef class Timer:
    """The tasks with an alarm, not sorted: every open database has only a few."""
    cdef readonly bint ended
    cdef _Call call
    cdef TaskState first
    cdef uint64_t until             # the thread sleeps until then; 0: it is awake

    def __cinit__(self):
        self.call = _Call()

    cdef void add(self, TaskState task, double seconds) noexcept:
        cdef uint64_t alarm = lsm_now_ns() + <uint64_t>(max(seconds, 0.0) * 1e9)
        if task.closed or (task.alarm and task.alarm <= alarm):
            return
        if not task.alarm:
            task.next_alarm = self.first
            self.first = task
        task.alarm = alarm
        if alarm < self.until:
            self.call.call()

    cdef void cancel(self, TaskState task) noexcept:
        cdef TaskState other
        if not task.alarm:
            return
        task.alarm = 0
        if self.first is task:
            self.first = task.next_alarm
        else:
            other = self.first
            while other.next_alarm is not task:
                other = other.next_alarm
            other.next_alarm = task.next_alarm
        task.next_alarm = None

    @property
    def pending(self):
        """The number of tasks with an alarm."""
        cdef TaskState task = self.first
        cdef int count = 0
        while task is not None:
            count += 1
            task = task.next_alarm
        return count

    def ring(self):
        """Return a task whose alarm is due and end its pause, or None."""
        cdef uint64_t now = lsm_now_ns()
        cdef TaskState task = self.first
        while task is not None:
            if task.alarm <= now:
                self.cancel(task)
                task.paused = False
                return task
            task = task.next_alarm
        return None

    def sleep(self):
        """Wait for the next alarm, or for `end`."""
        cdef uint64_t now = lsm_now_ns()
        cdef TaskState task = self.first
        cdef uint64_t until = NEVER
        while task is not None:
            until = min(until, task.alarm)
            task = task.next_alarm
        self.until = until
        if not self.ended:
            self.call.wait(NEVER if until == NEVER else min(until - min(until, now), LONGEST_SLEEP_NS))
        self.until = 0

    def end(self):
        self.ended = True
        self.call.call()


cdef class Users:
    """Counts the users of something that ends for good with the last of them."""
    cdef readonly int count
    cdef bint ended

    def enter(self):
        """Add the caller to the users, unless the last one has left. Return whether it did."""
        if not self.ended:
            self.count += 1
        return not self.ended

    def leave(self):
        """Return whether the caller was the last."""
        self.count -= 1
        self.ended = self.count == 0
        return self.ended
