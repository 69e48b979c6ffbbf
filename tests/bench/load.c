/* A load generator for Kafka brokers: one thread, epoll, nothing between it and the socket.
 *
 *   load produce PORT TOPIC PARTITIONS CONNECTIONS IN_FLIGHT SECONDS BATCH_FILE [MOST_BYTES [ACKS]]
 *   load fetch   PORT TOPIC PARTITIONS CONNECTIONS SECONDS MAX_BYTES
 *   load think   PORT TOPIC PARTITIONS CONNECTIONS IN_FLIGHT SECONDS BATCH_FILE RATE
 *
 * produce  sends the one record batch in BATCH_FILE over and over (Produce v8, acks=ACKS, else 1), IN_FLIGHT
 *          requests at a time on each connection.  Connection c writes to partition c % PARTITIONS.
 *          It ends early when MOST_BYTES are in the log.
 * fetch    reads partition c % PARTITIONS from offset 0 to the high watermark, again and again
 *          (Fetch v11, no session, min_bytes 1, max_wait 500 ms).
 * think    as produce, at RATE requests a second in all; a latency counts from when the request
 *          was due, so that a broker that stalls is charged for all it held up.
 *
 * One line of JSON on standard output: requests, errors, bytes of record batches, seconds, and
 * latencies in microseconds.  Exit 1 when the broker is silent for PATIENCE_S, 2 when any request was
 * refused.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

enum { PRODUCE = 0, FETCH = 1, MAX_IN_FLIGHT = 1024, CORRELATION = 7 };
enum { BATCH_HEADER = 61, BATCH_OVERHEAD = 12, LAST_OFFSET_DELTA_AT = 23 };
enum { PATIENCE_S = 10 };

typedef struct {
  int fd, partition, wants_write;
  uint8_t *request;            /* the encoded request, length prefix first */
  size_t request_size, sent;   /* sent: how much of the one under way is out */
  double due[MAX_IN_FLIGHT];   /* when the requests in flight began, a ring */
  unsigned begun, answered;
  uint8_t *in;                 /* answers, from the first that is not complete */
  size_t in_size, in_room;
  int64_t offset;              /* of the next fetch */
} Connection;

static const char *topic;
static int fetching, partitions, in_flight = 1, acks = 1, max_bytes, poller;
static double ends, interval, next_due, last_answer;
static uint64_t requests, errors, bytes, most_bytes = UINT64_MAX;
static size_t batch_size;

static float *latencies;
static size_t latency_count, latency_room;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

/* --- encoding ------------------------------------------------------------------------------ */

static uint8_t *put(uint8_t *p, int64_t value, int size) {
  for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) *p++ = (uint8_t)(value >> shift);
  return p;
}

static int64_t get(const uint8_t *p, int size) {
  int64_t value = (int8_t)*p;
  while (--size) value = value << 8 | *++p;
  return value;
}

static uint8_t *put_string(uint8_t *p, const char *text) {
  size_t size = strlen(text);
  p = put(p, (int64_t)size, 2);
  memcpy(p, text, size);
  return p + size;
}

static uint8_t *put_header(uint8_t *p, int api, int version) {
  p = put(put(put(p, api, 2), version, 2), CORRELATION, 4);
  return put_string(p, "load");
}

static void finish(Connection *c, const uint8_t *end) {
  c->request_size = (size_t)(end - c->request);
  put(c->request, (int64_t)c->request_size - 4, 4);
}

static void encode_produce(Connection *c, const uint8_t *batch, size_t size) {
  c->request = malloc(size + 512);
  uint8_t *p = put_header(c->request + 4, PRODUCE, 8);
  p = put(p, -1, 2);                             /* no transaction */
  p = put(put(p, acks, 2), 30000, 4);            /* acks, timeout */
  p = put_string(put(p, 1, 4), topic);
  p = put(put(put(p, 1, 4), c->partition, 4), (int64_t)size, 4);
  memcpy(p, batch, size);
  finish(c, p + size);
}

static void encode_fetch(Connection *c) {
  uint8_t *p = put_header(c->request + 4, FETCH, 11);
  p = put(put(put(p, -1, 4), 500, 4), 1, 4);     /* no replica, max wait, min bytes */
  p = put(put(p, max_bytes, 4), 0, 1);           /* max bytes, read uncommitted */
  p = put(put(p, 0, 4), -1, 4);                  /* no session */
  p = put_string(put(p, 1, 4), topic);
  p = put(put(put(p, 1, 4), c->partition, 4), -1, 4);
  p = put(put(put(p, c->offset, 8), -1, 8), max_bytes, 4);
  p = put(put(p, 0, 4), 0, 2);                   /* nothing forgotten, no rack */
  finish(c, p);
}

/* --- answers ------------------------------------------------------------------------------- */

static void take_produce(const uint8_t *answer) {
  /* correlation, topic count, name, partition count, partition, error */
  if (get(answer + 4 + 4 + 2 + strlen(topic) + 4 + 4, 2)) errors++;
  else bytes += batch_size;
}

static void take_fetch(Connection *c, const uint8_t *p) {
  /* correlation, throttle, error, session, topic count, name, partition count, partition */
  p += 4 + 4 + 2 + 4 + 4 + 2 + strlen(topic) + 4 + 4;
  if (get(p, 2)) errors++;
  int64_t high_watermark = get(p + 2, 8);
  p += 2 + 8 + 8 + 8;
  int64_t aborted = get(p, 4);
  p += 4 + (aborted > 0 ? aborted * 16 : 0) + 4;
  int64_t size = get(p, 4);
  p += 4;
  bytes += (uint64_t)size;
  for (const uint8_t *end = p + size; p + BATCH_HEADER <= end;) {
    int64_t length = get(p + 8, 4);
    if (p + BATCH_OVERHEAD + length > end) break; /* the last batch may be cut */
    c->offset = get(p, 8) + get(p + LAST_OFFSET_DELTA_AT, 4) + 1;
    p += BATCH_OVERHEAD + length;
  }
  if (c->offset >= high_watermark) c->offset = 0;
}

static void take(Connection *c, const uint8_t *answer) {
  if (latency_count == latency_room) {
    latency_room = latency_room ? 2 * latency_room : 1 << 16;
    latencies = realloc(latencies, latency_room * sizeof *latencies);
  }
  last_answer = now();
  latencies[latency_count++] = (float)((last_answer - c->due[c->answered++ % MAX_IN_FLIGHT]) * 1e6);
  requests++;
  if (fetching) take_fetch(c, answer);
  else take_produce(answer);
  if (bytes >= most_bytes) ends = 0;
}

/* --- sockets ------------------------------------------------------------------------------- */

static void want_write(Connection *c, int wants) {
  if (c->wants_write == wants) return;
  c->wants_write = wants;
  struct epoll_event event = {.events = EPOLLIN | (wants ? EPOLLOUT : 0), .data.ptr = c};
  if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event)) die("epoll_ctl");
}

/* Begin another request?  Notes when it was due. */
static int begin(Connection *c) {
  double t = now();
  if (c->begun - c->answered >= (unsigned)in_flight || t >= ends) return 0;
  if (interval > 0) {
    if (next_due > t) return 0;
    t = next_due;
    next_due += interval;
  }
  if (fetching) encode_fetch(c);
  c->due[c->begun++ % MAX_IN_FLIGHT] = t;
  return 1;
}

static void pump(Connection *c) {
  while (c->sent || begin(c)) {
    ssize_t size =
        send(c->fd, c->request + c->sent, c->request_size - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno != EAGAIN) die("send");
    if (size > 0) c->sent += (size_t)size;
    if (c->sent == c->request_size) {
      c->sent = 0;
    } else {
      /* A request of which not a byte is out has not begun. */
      if (!c->sent) { c->begun--; if (interval > 0) next_due -= interval; }
      want_write(c, 1);
      return;
    }
  }
  want_write(c, 0);
}

static void receive(Connection *c) {
  for (;;) {
    if (c->in_room - c->in_size < 1 << 16) c->in = realloc(c->in, c->in_room *= 2);
    size_t room = c->in_room - c->in_size;
    ssize_t size = recv(c->fd, c->in + c->in_size, room, MSG_DONTWAIT);
    if (size == 0) { fprintf(stderr, "load: the broker closed a connection\n"); exit(1); }
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) die("recv");
    c->in_size += (size_t)size;
    size_t at = 0;
    while (c->in_size - at >= 4) {
      size_t length = (size_t)get(c->in + at, 4);
      if (c->in_size - at - 4 < length) break;
      take(c, c->in + at + 4);
      at += 4 + length;
    }
    memmove(c->in, c->in + at, c->in_size -= at);
    if ((size_t)size < room) break;
  }
  pump(c);
}

static void open_connection(Connection *c, int number, int port) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
  int on = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  c->partition = number % partitions;
  c->in = malloc(c->in_room = 4 << 20);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) die("epoll_ctl");
}

/* --- the run ------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static double percentile(double share) {
  return latency_count ? latencies[(size_t)((double)(latency_count - 1) * share)] : 0;
}

static uint8_t *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) die(path);
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  uint8_t *data = malloc(*size);
  if (fread(data, 1, *size, file) != *size) die(path);
  fclose(file);
  return data;
}

int main(int count, char **words) {
  const char *mode = count > 1 ? words[1] : "";
  fetching = !strcmp(mode, "fetch");
  int thinking = !strcmp(mode, "think");
  if (count < (fetching ? 8 : thinking ? 10 : 9)) {
    fprintf(stderr, "usage: see the head of load.c\n");
    return 1;
  }
  int port = atoi(words[2]), connections = atoi(words[5]);
  topic = words[3];
  partitions = atoi(words[4]);
  double seconds;
  uint8_t *batch = NULL;
  if (fetching) {
    seconds = atof(words[6]);
    max_bytes = atoi(words[7]);
  } else {
    in_flight = atoi(words[6]);
    seconds = atof(words[7]);
    batch = read_file(words[8], &batch_size);
    if (thinking) interval = 1 / atof(words[9]);
    else if (count > 9) most_bytes = strtoull(words[9], NULL, 10);
    if (!thinking && count > 10) acks = atoi(words[10]);
  }
  if (in_flight > MAX_IN_FLIGHT) { fprintf(stderr, "load: too many in flight\n"); return 1; }
  poller = epoll_create1(0);
  Connection *all = calloc((size_t)connections, sizeof *all);
  for (int i = 0; i < connections; i++) {
    open_connection(&all[i], i, port);
    if (fetching) all[i].request = malloc(512);
    else encode_produce(&all[i], batch, batch_size);
  }
  double began = last_answer = next_due = now();
  ends = began + seconds;
  for (int i = 0; i < connections; i++) pump(&all[i]);
  for (struct epoll_event events[64];;) {
    unsigned waiting = 0;
    for (int i = 0; i < connections; i++) waiting += all[i].begun - all[i].answered;
    double t = now();
    if (!waiting && t >= ends) break;
    if (!waiting) last_answer = t;
    if (t > last_answer + PATIENCE_S) {
      fprintf(stderr, "load: no answer for %d s\n", PATIENCE_S);
      return 1;
    }
    int n = epoll_wait(poller, events, 64, interval > 0 ? 0 : 1000);
    if (n < 0 && errno != EINTR) die("epoll_wait");
    for (int i = 0; i < n; i++) {
      if (events[i].events & EPOLLIN) receive(events[i].data.ptr);
      if (events[i].events & EPOLLOUT) pump(events[i].data.ptr);
    }
    if (interval > 0) for (int i = 0; i < connections; i++) pump(&all[i]);
  }
  double took = now() - began;
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  qsort(latencies, latency_count, sizeof *latencies, ascending);
  printf("{\"seconds\": %.4f, \"requests\": %lu, \"errors\": %lu, \"bytes\": %lu, "
         "\"requests_s\": %.1f, \"mb_s\": %.2f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
         "\"p999_us\": %.1f, \"max_us\": %.1f, \"client_cpu_s\": %.3f}\n",
         took, requests, errors, bytes, (double)requests / took, (double)bytes / took / 1e6,
         percentile(.5), percentile(.99), percentile(.999), percentile(1),
         (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
             (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6);
  return errors ? 2 : 0;
}
