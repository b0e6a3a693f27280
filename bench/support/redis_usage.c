/* redis_usage.c - what a Redis server says about its processor time and its memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_usage.h"

#include "measure.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Greatest size in bytes of a command. */
enum { COMMAND_BYTES = 4096 };

void redis_usage_open(struct redis_usage *usage, uint16_t port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(port),
                                        .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};

    usage->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (usage->fd < 0 ||
        connect(usage->fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        bench_die("connecting to Redis");
    }
}

void redis_usage_close(struct redis_usage *usage)
{
    (void)close(usage->fd);
}

/* Reads the reply to INFO, a text with its length before it. */
static void read_text(struct redis_usage *usage)
{
    size_t have = 0;
    size_t want = REDIS_USAGE_BYTES - 1;

    while (have < want) {
        ssize_t got = read(usage->fd, usage->text + have, REDIS_USAGE_BYTES - 1 - have);
        char *line;

        if (got <= 0) {
            bench_die("reading what Redis says");
        }
        have += (size_t)got;
        usage->text[have] = '\0';
        line = strstr(usage->text, "\r\n");
        if (usage->text[0] != '$') {
            bench_die("a reply of Redis that is not text");
        }
        if (line != NULL) {
            want = (size_t)(line - usage->text) + 4 + strtoul(usage->text + 1, NULL, 10);
        }
    }
}

void redis_usage_ask(struct redis_usage *usage, const char *section)
{
    char command[64];
    int bytes = snprintf(command, sizeof(command), "INFO %s\r\n", section);

    if (write(usage->fd, command, (size_t)bytes) != bytes) {
        bench_die("asking Redis");
    }
    read_text(usage);
}

double redis_usage_number(const struct redis_usage *usage, const char *name)
{
    char wanted[64];
    const char *line;
    int bytes = snprintf(wanted, sizeof(wanted), "\n%s:", name);

    line = strstr(usage->text, wanted);
    return line == NULL ? 0 : strtod(line + bytes, NULL);
}

double redis_usage_seconds(struct redis_usage *usage)
{
    redis_usage_ask(usage, "cpu");
    return redis_usage_number(usage, "used_cpu_sys") + redis_usage_number(usage, "used_cpu_user");
}

void redis_usage_set(const struct redis_usage *usage, int bytes)
{
    char command[COMMAND_BYTES];
    char reply[16];
    int size = snprintf(command, sizeof(command),
                        "*3\r\n$3\r\nSET\r\n$5\r\nplain\r\n$%d\r\n%0*d\r\n", bytes, bytes, 0);

    if (size >= COMMAND_BYTES || write(usage->fd, command, (size_t)size) != size ||
        read(usage->fd, reply, sizeof(reply)) <= 0 || reply[0] != '+') {
        bench_die("a plain write");
    }
}
