/* pyallocfault: fails the N-th allocation of Python objects (PyObject_Malloc, PyMem_Malloc), or many from the N-th on.
 *
 * A module, not a library for ctypes: while every allocation fails, `disarm()` must still be callable. It wraps the
 * allocators when it is imported, and lets every call through until it is armed.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdatomic.h>

static PyMemAllocatorEx object_allocator, memory_allocator; /* the real ones */
static atomic_int armed;
static atomic_long calls, hits;
static long nth, burst; /* fails so many calls from the n-th on */
static int place = -1; /* descriptor that gets the traceback of the first hit */

typedef void dump_function(int, PyThreadState *);

static void note_place(void)
{
    /* What faulthandler uses: it allocates nothing. */
    dump_function *dump = (dump_function *)dlsym(RTLD_DEFAULT, "_Py_DumpTraceback");
    PyThreadState *thread = PyGILState_GetThisThreadState();
    if (place >= 0 && dump && thread)
        dump(place, thread);
}

static int refused(void)
{
    if (!atomic_load(&armed))
        return 0;
    long n = atomic_fetch_add(&calls, 1) + 1;
    if (!nth || n < nth || n - nth >= burst)
        return 0;
    if (!atomic_fetch_add(&hits, 1))
        note_place();
    return 1;
}

static void *our_malloc(void *real, size_t n)
{
    PyMemAllocatorEx *a = real;
    return refused() ? NULL : a->malloc(a->ctx, n);
}

static void *our_calloc(void *real, size_t n, size_t size)
{
    PyMemAllocatorEx *a = real;
    return refused() ? NULL : a->calloc(a->ctx, n, size);
}

static void *our_realloc(void *real, void *p, size_t n)
{
    PyMemAllocatorEx *a = real;
    return refused() ? NULL : a->realloc(a->ctx, p, n);
}

static void our_free(void *real, void *p)
{
    PyMemAllocatorEx *a = real;
    a->free(a->ctx, p);
}

static void wrap(PyMemAllocatorDomain domain, PyMemAllocatorEx *real)
{
    PyMemAllocatorEx ours = {real, our_malloc, our_calloc, our_realloc, our_free};
    PyMem_GetAllocator(domain, real);
    PyMem_SetAllocator(domain, &ours);
}

/* arm(which, how_many, fd): counts from 1 on; 0 only counts. */
static PyObject *py_arm(PyObject *self, PyObject *arguments)
{
    (void)self;
    if (!PyArg_ParseTuple(arguments, "lli", &nth, &burst, &place))
        return NULL;
    atomic_store(&calls, 0);
    atomic_store(&hits, 0);
    atomic_store(&armed, 1);
    Py_RETURN_NONE;
}

static PyObject *py_disarm(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    atomic_store(&armed, 0);
    Py_RETURN_NONE;
}

static PyObject *py_calls(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(atomic_load(&calls));
}

static PyObject *py_hits(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(atomic_load(&hits));
}

static PyMethodDef functions[] = {
    {"arm", py_arm, METH_VARARGS, NULL},
    {"disarm", py_disarm, METH_NOARGS, NULL},
    {"calls", py_calls, METH_NOARGS, NULL},
    {"hits", py_hits, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "pyallocfault", .m_methods = functions};

PyMODINIT_FUNC PyInit_pyallocfault(void)
{
    wrap(PYMEM_DOMAIN_OBJ, &object_allocator);
    wrap(PYMEM_DOMAIN_MEM, &memory_allocator);
    return PyModule_Create(&module);
}
