/* Throughput of libzmq in C, in the manner of its own local_thr and remote_thr.
 *
 *   libzmq_throughput receive COUNT SIZE         prints "address ADDRESS", then "rate MESSAGES_A_SECOND"
 *   libzmq_throughput send COUNT SIZE ADDRESS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
        exit(1);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void receive(void *context, long count, size_t size)
{
    void *socket = zmq_socket(context, ZMQ_PULL);
    check(socket != NULL, "zmq_socket");
    check(zmq_bind(socket, "tcp://127.0.0.1:*") == 0, "zmq_bind");
    char address[256];
    size_t length = sizeof address;
    check(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address, &length) == 0, "zmq_getsockopt");
    printf("address %s\n", address);
    fflush(stdout);

    zmq_msg_t message;
    check(zmq_msg_init(&message) == 0, "zmq_msg_init");
    check(zmq_msg_recv(&message, socket, 0) >= 0, "zmq_msg_recv");
    double start = now();
    for (long i = 1; i < count; i++) {
        check(zmq_msg_recv(&message, socket, 0) >= 0, "zmq_msg_recv");
        if (zmq_msg_size(&message) != size) {
            fprintf(stderr, "a message of the wrong size\n");
            exit(1);
        }
    }
    printf("rate %f\n", (count - 1) / (now() - start));
    fflush(stdout);
    zmq_msg_close(&message);
    zmq_close(socket);
}

static void send(void *context, long count, size_t size, const char *address)
{
    void *socket = zmq_socket(context, ZMQ_PUSH);
    check(socket != NULL, "zmq_socket");
    check(zmq_connect(socket, address) == 0, "zmq_connect");
    for (long i = 0; i < count; i++) {
        zmq_msg_t message;
        check(zmq_msg_init_size(&message, size) == 0, "zmq_msg_init_size");
        memset(zmq_msg_data(&message), 'x', size);
        check(zmq_msg_send(&message, socket, 0) >= 0, "zmq_msg_send");
    }
    zmq_close(socket);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s receive|send COUNT SIZE [ADDRESS]\n", argv[0]);
        return 2;
    }
    void *context = zmq_ctx_new();
    if (strcmp(argv[1], "receive") == 0)
        receive(context, atol(argv[2]), atol(argv[3]));
    else if (argc == 5)
        send(context, atol(argv[2]), atol(argv[3]), argv[4]);
    zmq_ctx_term(context); /* waits until all is written */
    return 0;
}
