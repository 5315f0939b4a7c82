/* libzmq over epgm, in C: a publisher and a subscriber that measures.
 *
 *   libzmq_multicast receive URL COUNT SIZE KBIT     prints "ready", then "received MESSAGES SECONDS P50 P99"
 *   libzmq_multicast send URL COUNT SIZE KBIT GAP    prints "ready", sends at the first line of stdin, ends at the second
 *
 * Every message begins with the time at which it was sent; latencies are in microseconds.  GAP: nanoseconds between messages.
 * A message of three bytes is the end; what is late by then, or after 15 seconds, does not count.  KBIT is the limit of the rate (ZMQ_RATE), of repairs too.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

static const int64_t MOST = 15000000000LL; /* nanoseconds after which a receiver has measured enough */

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
        exit(1);
    }
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void *open_socket(void *context, int type, const char *url, int rate)
{
    void *socket = zmq_socket(context, type);
    int none = 0, recovery = 10000, buffer = 16 << 20;
    check(socket != NULL, "zmq_socket");
    check(zmq_setsockopt(socket, ZMQ_RATE, &rate, sizeof rate) == 0, "ZMQ_RATE");
    check(zmq_setsockopt(socket, ZMQ_RECOVERY_IVL, &recovery, sizeof recovery) == 0, "ZMQ_RECOVERY_IVL");
    check(zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none) == 0, "ZMQ_SNDHWM");
    check(zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none) == 0, "ZMQ_RCVHWM");
    check(zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none) == 0, "ZMQ_LINGER");
    check(zmq_setsockopt(socket, ZMQ_RCVBUF, &buffer, sizeof buffer) == 0, "ZMQ_RCVBUF"); /* as large as the system lets it */
    check(zmq_setsockopt(socket, ZMQ_SNDBUF, &buffer, sizeof buffer) == 0, "ZMQ_SNDBUF");
    if (type == ZMQ_SUB)
        check(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0) == 0, "ZMQ_SUBSCRIBE");
    check(zmq_connect(socket, url) == 0, url);
    printf("ready\n");
    fflush(stdout);
    return socket;
}

static int ascending(const void *one, const void *other)
{
    int64_t a = *(const int64_t *) one, b = *(const int64_t *) other;
    return (a > b) - (a < b);
}

static void receive(void *socket, long count)
{
    int64_t *taken = malloc(count * sizeof *taken), first = 0, last = 0;
    long received = 0;
    zmq_msg_t message;
    check(zmq_msg_init(&message) == 0, "zmq_msg_init");
    while (received < count && last - first < MOST) {
        int64_t sent;
        int timeout = first ? 3000 : 60000;
        zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
        do {
            if (zmq_msg_recv(&message, socket, 0) < 8)
                goto over; /* the end, or nothing for a while */
            last = now();
            if (first == 0)
                first = last;
            memcpy(&sent, zmq_msg_data(&message), sizeof sent);
            taken[received++] = last - sent;
        } while (received < count && received % 1000);
    }
over:
    qsort(taken, received, sizeof *taken, ascending);
    printf("received %ld %f %f %f\n", received, (last - first) / 1e9,
           received ? taken[received / 2] / 1e3 : 0.0, received ? taken[received * 99 / 100] / 1e3 : 0.0);
    fflush(stdout);
}

static void send(void *socket, long count, size_t size, int64_t gap)
{
    char line[16];
    int64_t due;
    check(fgets(line, sizeof line, stdin) != NULL, "stdin");
    due = now();
    for (long i = 0; i < count; i++) {
        zmq_msg_t message;
        int64_t sent;
        check(zmq_msg_init_size(&message, size) == 0, "zmq_msg_init_size");
        memset(zmq_msg_data(&message), 'x', size);
        if (gap) {
            due += gap;
            struct timespec time = {due / 1000000000LL, due % 1000000000LL};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
        }
        sent = now();
        memcpy(zmq_msg_data(&message), &sent, sizeof sent);
        check(zmq_msg_send(&message, socket, 0) >= 0, "zmq_msg_send");
    }
    for (;;) { /* the end, until all have heard it */
        struct pollfd waiting = {0, POLLIN, 0};
        check(zmq_send(socket, "END", 3, 0) == 3, "zmq_send");
        if (poll(&waiting, 1, 100) > 0)
            return;
    }
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: %s receive|send URL COUNT SIZE KBIT [GAP]\n", argv[0]);
        return 2;
    }
    void *context = zmq_ctx_new();
    if (strcmp(argv[1], "receive") == 0)
        receive(open_socket(context, ZMQ_SUB, argv[2], atoi(argv[5])), atol(argv[3]));
    else
        send(open_socket(context, ZMQ_PUB, argv[2], atoi(argv[5])), atol(argv[3]), atol(argv[4]),
             argc > 6 ? atoll(argv[6]) : 0);
    return 0;
}
