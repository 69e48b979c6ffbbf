/* The records of a batch, looked through: what log/validator.py does in Python, for batches that
   are in order, which nearly all are.

       largest_timestamp(body, count, base_timestamp, earliest, latest, keyed) -> int or None

   `body` is the bytes of the records, decompressed.  None where the walk in Python has to look, as
   it names what is wrong: the bytes are not `count` records with offset deltas 0, 1, 2 ..., a
   timestamp other than -1 is not in [earliest, latest], or a key is missing though `keyed`.

   4 to 10 ns a record of 200 bytes, which the walk in Python takes 300 for; half of it by fetching
   the record after the next ahead.  Other threads have the interpreter meanwhile.
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "record.h"

#define MUCH 65536 /* bytes, from which on it is worth it to let other threads run */

static const char *walk_record(Bytes *at, Bytes end, uint32_t expected, uint64_t *delta, Slot *key)
{
    uint32_t length, offset, headers;
    Slot value;
    const char *wrong;
    if ((wrong = read_length(at, end, &length)))
        return wrong;
    if (!length || length > end - *at)
        return SHORT;
    Bytes p = *at;
    *at = p + length;
    __builtin_prefetch(*at + length); /* where the record after the next begins if it is alike */
    p++; /* attributes, of which there are none */
    if ((wrong = read_varint(&p, *at, delta)) || (wrong = read_length(&p, *at, &offset))
        || (wrong = read_slot(&p, *at, key)) || (wrong = read_slot(&p, *at, &value))
        || (wrong = read_length(&p, *at, &headers)))
        return wrong;
    if (offset != expected)
        return "an offset that does not follow";
    return headers || p != *at ? read_headers(p, *at, headers) : NULL;
}

/* Whether all is in order. */
static int walk(Bytes at, Bytes end, int64_t count, int64_t base, int64_t earliest, int64_t latest,
                int keyed, int64_t *largest)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t delta = 0;
        int64_t timestamp;
        Slot key = {0};
        if (walk_record(&at, end, (uint32_t)i, &delta, &key)
            || __builtin_add_overflow(base, (int64_t)(delta >> 1 ^ -(delta & 1)), &timestamp)
            || (timestamp != -1 && (timestamp < earliest || timestamp > latest))
            || (keyed && !key.at))
            return 0;
        if (timestamp > *largest)
            *largest = timestamp;
    }
    return at == end;
}

static PyObject *largest_timestamp(PyObject *self, PyObject *const *given, Py_ssize_t arguments)
{
    Py_buffer body;
    int64_t number[4], largest = -1;
    int keyed, fine;
    if (arguments != 6) {
        PyErr_SetString(PyExc_TypeError, "largest_timestamp takes 6 arguments");
        return NULL;
    }
    for (int i = 0; i < 4; i++)
        if ((number[i] = PyLong_AsLongLong(given[i + 1])) == -1 && PyErr_Occurred())
            return NULL;
    if ((keyed = PyObject_IsTrue(given[5])) < 0 || PyObject_GetBuffer(given[0], &body, PyBUF_SIMPLE))
        return NULL;
    PyThreadState *state = body.len < MUCH ? NULL : PyEval_SaveThread();
    fine = walk(body.buf, (Bytes)body.buf + body.len, number[0], number[1], number[2], number[3],
                keyed, &largest);
    if (state)
        PyEval_RestoreThread(state);
    PyBuffer_Release(&body);
    if (!fine)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(largest);
}

static PyMethodDef methods[] = {
    {"largest_timestamp", (PyCFunction)(void (*)(void))largest_timestamp, METH_FASTCALL,
     "That of a batch which is in order."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "kserver.wire._walk", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__walk(void)
{
    return PyModule_Create(&module);
}
