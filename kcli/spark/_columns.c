/* Record batches into columns of Arrow: what kcli/spark/columns.py does with numpy, in one pass.

       decode(batches, key, value, headers) -> (starts, offsets, times, keys, values, headers)

   `batches` is a list of (body, count, base offset, last offset delta, time, appended): the bytes of
   the records, what the batch's header says of them, and the time that deltas count from or, if
   `appended`, that all have.  The three flags say which columns are wanted; others are None.  What
   comes back is in buffers as Arrow has them, filled for all records one after the other.

   First the records are walked: each is checked and where its fields lie is kept.  Then what is
   wanted is copied, each byte once.  To walk, and to copy keys and values, the interpreter is not
   needed, and other threads have it meanwhile.  ProtocolError for bytes that are not what the header says.

   Every read is held to the end of its record, and that to the end of its batch, before it is made.
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../../kserver/wire/record.h"

typedef struct {
    Py_buffer body;
    Py_ssize_t count;
    int64_t base_offset, last_delta, time;
    int appended;
} Batch;

typedef struct {
    int64_t start, offset, time; /* `start` counts over the bodies of all batches */
    Slot key, value;
    Bytes headers, end;
    uint32_t header_count;
} Record;

/* An array of Arrow's binary type, or of its lists where there are no bytes. */
typedef struct {
    PyObject *valid, *ends, *data;
    uint8_t *bits, *bytes;
    int32_t *offsets;
} Column;

static PyObject *protocol_error;

static const char LAST[] = "the last record does not end where the batch does";

static inline const char *walk_record(Bytes *at, Bytes end, const Batch *batch, Record *record)
{
    uint32_t length, delta;
    uint64_t time;
    const char *wrong;
    if ((wrong = read_length(at, end, &length)))
        return wrong;
    if (length > end - *at)
        return SHORT;
    Bytes p = *at;
    record->end = *at = p + length;
    if (!length)
        return FIELDS;
    p++; /* attributes, of which there are none */
    if ((wrong = read_varint(&p, *at, &time)) || (wrong = read_length(&p, *at, &delta))
        || (wrong = read_slot(&p, *at, &record->key))
        || (wrong = read_slot(&p, *at, &record->value))
        || (wrong = read_length(&p, *at, &record->header_count)))
        return wrong;
    record->offset = delta;
    record->time = batch->time;
    if (!batch->appended
        && __builtin_add_overflow(batch->time, (int64_t)(time >> 1 ^ -(time & 1)), &record->time))
        return "a timestamp of more than 64 bits";
    record->headers = p;
    return record->header_count || p != *at ? read_headers(p, *at, record->header_count) : NULL;
}

static const char *walk(const Batch *batches, Py_ssize_t count, Record *record)
{
    int64_t before = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Batch *batch = batches + i;
        Bytes begin = batch->body.buf, at = begin, end = begin + batch->body.len;
        int64_t last = -1;
        for (Py_ssize_t j = 0; j < batch->count; j++, record++) {
            if (at == end)
                return SHORT;
            record->start = before + (at - begin);
            const char *wrong = walk_record(&at, end, batch, record);
            if (wrong)
                return wrong;
            if (record->offset <= last)
                return "records whose offsets do not ascend";
            last = record->offset;
            if (last > batch->last_delta)
                return "a record past the batch's last offset";
            record->offset += batch->base_offset;
        }
        if (at != end)
            return LAST;
        before += batch->body.len;
    }
    return NULL;
}

/* Columns: made with the interpreter, filled without. */

static void *made(PyObject **bytes, int64_t size)
{
    *bytes = PyBytes_FromStringAndSize(NULL, size);
    return *bytes ? PyBytes_AS_STRING(*bytes) : NULL;
}

/* 0 when there is no memory; `size` < 0 for a column of lists. */
static int column_made(Column *column, int64_t rows, int64_t nulls, int64_t size)
{
    if (rows > INT32_MAX || size > INT32_MAX) {
        PyErr_SetString(protocol_error, "more than 2 GB of records at once");
        return 0;
    }
    if (nulls) {
        if (!(column->bits = made(&column->valid, (rows + 7) / 8)))
            return 0;
        memset(column->bits, 0, (rows + 7) / 8);
    }
    if (!(column->offsets = made(&column->ends, (rows + 1) * 4)))
        return 0;
    column->offsets[0] = 0;
    return size < 0 || (column->bytes = made(&column->data, size));
}

static inline void put_end(Column *column, int64_t row, int is_valid, int64_t size)
{
    column->offsets[row + 1] = column->offsets[row] + (int32_t)size;
    if (column->bits && is_valid)
        column->bits[row >> 3] |= 1 << (row & 7);
}

static inline void put(Column *column, int64_t row, Slot slot)
{
    if (slot.size)
        memcpy(column->bytes + column->offsets[row], slot.at, slot.size);
    put_end(column, row, slot.at != NULL, slot.size);
}

/* The buffers, which are taken out of the column. */
static PyObject *taken(Column *column)
{
    PyObject *valid = column->valid ? column->valid : Py_NewRef(Py_None);
    PyObject *of = column->data ? Py_BuildValue("[NNN]", valid, column->ends, column->data)
                                : Py_BuildValue("[NN]", valid, column->ends);
    column->valid = column->ends = column->data = NULL;
    return of;
}

static void dropped(Column *column)
{
    Py_CLEAR(column->valid);
    Py_CLEAR(column->ends);
    Py_CLEAR(column->data);
}

static PyObject *slots_taken(const Record *records, int64_t count, size_t field)
{
#define SLOT(i) (*(const Slot *)((const char *)(records + (i)) + field))
    Column column = {0};
    int64_t nulls = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        nulls += !SLOT(i).at;
        size += SLOT(i).size;
    }
    if (!column_made(&column, count, nulls, size)) {
        dropped(&column);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < count; i++)
        put(&column, i, SLOT(i));
    Py_END_ALLOW_THREADS
    return taken(&column);
#undef SLOT
}

/* Lists, null where there are none, of names and of values. */
static PyObject *headers_taken(const Record *records, int64_t count)
{
    Column lists = {0}, names = {0}, values = {0};
    Slot name = {0}, value = {0};
    int64_t empty = 0, all = 0, name_bytes = 0, value_bytes = 0, nulls = 0;
    PyObject *found = NULL;
    for (int64_t i = 0; i < count; i++) {
        Bytes at = records[i].headers;
        empty += !records[i].header_count;
        all += records[i].header_count;
        for (uint32_t j = 0; j < records[i].header_count; j++) {
            read_header(&at, records[i].end, &name, &value);
            name_bytes += name.size;
            value_bytes += value.size;
            nulls += !value.at;
        }
    }
    if (column_made(&lists, count, empty, -1) && column_made(&names, all, 0, name_bytes)
        && column_made(&values, all, nulls, value_bytes)) {
        int64_t row = 0;
        for (int64_t i = 0; i < count; i++) {
            Bytes at = records[i].headers;
            put_end(&lists, i, records[i].header_count != 0, records[i].header_count);
            for (uint32_t j = 0; j < records[i].header_count; j++, row++) {
                read_header(&at, records[i].end, &name, &value);
                put(&names, row, name);
                put(&values, row, value);
            }
        }
        found = Py_BuildValue("(NNN)", taken(&lists), taken(&names), taken(&values));
    }
    dropped(&lists);
    dropped(&names);
    dropped(&values);
    return found;
}

static PyObject *ints_taken(const Record *records, int64_t count, size_t field)
{
    PyObject *bytes;
    char *to = made(&bytes, count * 8);
    if (to)
        for (int64_t i = 0; i < count; i++)
            memcpy(to + 8 * i, (const char *)(records + i) + field, 8);
    return bytes;
}

static PyObject *columns(const Record *records, int64_t count, int key, int value, int headers)
{
#define INTS(field) ints_taken(records, count, offsetof(Record, field))
#define SLOTS(field, wanted) \
    (wanted ? slots_taken(records, count, offsetof(Record, field)) : Py_NewRef(Py_None))
    /* "N" of a NULL, which has set its error, makes the whole NULL. */
    return Py_BuildValue("(NNNNNN)", INTS(start), INTS(offset), INTS(time), SLOTS(key, key),
                         SLOTS(value, value),
                         headers ? headers_taken(records, count) : Py_NewRef(Py_None));
#undef INTS
#undef SLOTS
}

static PyObject *decode(PyObject *self, PyObject *args)
{
    PyObject *list, *found = NULL;
    int key, value, headers;
    if (!PyArg_ParseTuple(args, "O!ppp", &PyList_Type, &list, &key, &value, &headers))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(list), opened = 0, rows = 0;
    Batch *batches = PyMem_Calloc(count ? count : 1, sizeof(Batch));
    Record *records = NULL;
    if (!batches)
        return PyErr_NoMemory();
    for (; opened < count; opened++) {
        Batch *batch = batches + opened;
        long long base, last, time;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, opened), "y*nLLLp", &batch->body,
                              &batch->count, &base, &last, &time, &batch->appended))
            goto done;
        batch->base_offset = base;
        batch->last_delta = last;
        batch->time = time;
        /* No record is of fewer bytes than two, so the sum cannot run over. */
        if (batch->count < 0 || batch->count > batch->body.len / 2) {
            opened++;
            PyErr_Format(protocol_error, "%zd records in %zd bytes", batch->count,
                         batch->body.len);
            goto done;
        }
        rows += batch->count;
    }
    if (!(records = PyMem_RawMalloc((rows ? rows : 1) * sizeof(Record)))) {
        PyErr_NoMemory();
        goto done;
    }
    const char *wrong;
    Py_BEGIN_ALLOW_THREADS
    wrong = walk(batches, count, records);
    Py_END_ALLOW_THREADS
    if (wrong)
        PyErr_SetString(protocol_error, wrong);
    else
        found = columns(records, rows, key, value, headers);
done:
    while (opened--)
        PyBuffer_Release(&batches[opened].body);
    PyMem_RawFree(records);
    PyMem_Free(batches);
    return found;
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS, "Columns of Arrow out of the records of some batches."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "kcli.spark._columns", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__columns(void)
{
    PyObject *errors = PyImport_ImportModule("kserver.errors");
    if (!errors)
        return NULL;
    protocol_error = PyObject_GetAttrString(errors, "ProtocolError");
    Py_DECREF(errors);
    return protocol_error ? PyModule_Create(&module) : NULL;
}
