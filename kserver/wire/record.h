/* The fields of a record, read by what is in C: its layout is told in records.py.

   Each reader moves `at` on, never past `end`, and returns what is wrong, NULL for nothing.
*/

#include <stdint.h>

typedef const uint8_t *Bytes;

/* Bytes of a record; of a null `at` is NULL. */
typedef struct {
    Bytes at;
    uint32_t size;
} Slot;

static const char SHORT[] = "truncated record";
static const char VARINT[] = "a varint of more than 64 bits";
static const char LENGTH[] = "a length that is negative, or has more than 32 bits or five bytes";
static const char FIELDS[] = "a record whose length does not match its fields";

static inline const char *read_varint(Bytes *at, Bytes end, uint64_t *value)
{
    Bytes p = *at;
    if (p < end && *p < 0x80) {
        *value = *p;
        *at = p + 1;
        return NULL;
    }
    *value = 0;
    for (int shift = 0; p < end; shift += 7) {
        uint8_t byte = *p++;
        if (shift == 63 && byte > 1)
            return VARINT;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *at = p;
            return NULL;
        }
    }
    return SHORT;
}

/* A zigzag varint that is not negative and has 32 bits at most.  Java's clients refuse one of more
   than five bytes, also where those after the fifth add nothing. */
static inline const char *read_length(Bytes *at, Bytes end, uint32_t *length)
{
    uint64_t value;
    Bytes start = *at;
    const char *wrong = read_varint(at, end, &value);
    if (wrong)
        return wrong;
    if (value & 1 || value >> 32 || *at - start > 5)
        return LENGTH;
    *length = (uint32_t)(value >> 1);
    return NULL;
}

/* A length and so many bytes; a single byte of 1 is -1, for null. */
static inline const char *read_slot(Bytes *at, Bytes end, Slot *slot)
{
    if (*at < end && **at == 1) {
        *slot = (Slot){NULL, 0};
        ++*at;
        return NULL;
    }
    uint32_t size;
    const char *wrong = read_length(at, end, &size);
    if (wrong)
        return wrong;
    if (size > end - *at)
        return FIELDS;
    *slot = (Slot){*at, size};
    *at += size;
    return NULL;
}

static const char *read_header(Bytes *at, Bytes end, Slot *name, Slot *value)
{
    const char *wrong = read_slot(at, end, name);
    if (wrong)
        return wrong;
    return name->at ? read_slot(at, end, value) : "a header without a name";
}

/* So many headers, which end where the record does. */
static const char *read_headers(Bytes at, Bytes end, uint32_t count)
{
    Slot name = {0}, value = {0};
    for (uint32_t i = 0; i < count; i++) {
        const char *wrong = read_header(&at, end, &name, &value);
        if (wrong)
            return wrong;
    }
    return at == end ? NULL : FIELDS;
}
