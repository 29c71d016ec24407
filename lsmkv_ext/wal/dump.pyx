from libc.stdint cimport uint64_t

from lsmkv_ext.batch cimport OpCursor, Operation, op_tuple, ops_allowed, ops_begin, ops_next, ops_problem
from lsmkv_ext.port.status cimport Status, fail_corrupt, raise_status, status_clear
from lsmkv_ext.wal.format cimport LogRecord, record_size
from lsmkv_ext.wal.reader cimport LogFile, LogReader, log_blank_from, log_read_head, log_read_record


cdef class LogDump:
    """Iterates over a log: a dict for its head, one per record, and a last one with "problem" where the log stops before its end.

    The "operations" of a record are an iterator, valid until the next record is read: one record may hold millions.
    """
    cdef LogReader reader
    cdef uint64_t next_offset       # of the next record; 0: the head comes first
    cdef bint ended

    def __cinit__(self, path):
        self.reader = LogReader(path)

    def __iter__(self):
        return self

    def __next__(self):
        if self.ended:
            raise StopIteration
        return self.read_head() if self.next_offset == 0 else self.read_record()

    cdef dict read_head(self):
        cdef LogFile* file = &self.reader.file
        cdef Status st
        status_clear(&st)
        log_read_head(file, 0, &st)
        raise_status(&st, self.reader.path)
        self.next_offset = file.offset
        return {
            "head": True,
            "version": file.head.version,
            "number": file.head.number,
            "previous_last_seq": file.head.previous_last_seq,
            "known_synced": file.head.known_synced,
            "file_size": file.size,
            "problem": None,
        }

    cdef dict read_record(self):
        cdef LogFile* file = &self.reader.file
        cdef LogRecord record
        cdef const char* problem
        cdef Status st
        status_clear(&st)
        file.offset = self.next_offset
        problem = log_read_record(file, &record, &st)
        raise_status(&st, self.reader.path)
        if problem != NULL:
            return self.end(problem.decode())
        problem = ops_problem(record.payload, record.size, record.count, ops_allowed(file.head.version))
        if problem != NULL:
            fail_corrupt(&st, problem, file.head.number, record.offset)
            raise_status(&st, self.reader.path)
        self.next_offset = record.offset + record_size(record.size)
        return {
            "offset": record.offset,
            "size": record_size(record.size),
            "first_seq": record.first_seq,
            "count": record.count,
            "synced": record.synced,
            "operations": record_operations(self.reader, &record),
        }

    cdef dict end(self, str problem):
        cdef LogFile* file = &self.reader.file
        cdef int blank = 0
        cdef Status st
        self.ended = True
        if not problem:
            status_clear(&st)
            blank = log_blank_from(file, file.offset, &st)
            raise_status(&st, self.reader.path)
        if blank:
            raise StopIteration
        return {"offset": file.offset, "problem": problem or "a hole in the log"}


cdef class RecordOperations:
    """Iterates over a record's operations: (name, key, value or None, seq, keyspace)."""
    cdef LogReader reader           # its window holds the record
    cdef OpCursor ops
    cdef uint64_t offset            # of the record

    def __iter__(self):
        return self

    def __next__(self):
        cdef Operation op
        if self.ops.left == 0:
            raise StopIteration
        if self.reader.file.offset != self.offset:
            raise ValueError("a record's operations must be read before the next record")
        ops_next(&self.ops, &op)    # the record was checked
        return op_tuple(&op)


cdef RecordOperations record_operations(LogReader reader, const LogRecord* record):
    cdef RecordOperations self = RecordOperations.__new__(RecordOperations)
    self.reader = reader
    self.offset = record.offset
    ops_begin(&self.ops, record.payload, record.size, record.count, record.first_seq,
              ops_allowed(reader.file.head.version))
    return self
