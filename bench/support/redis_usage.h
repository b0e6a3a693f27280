/* redis_usage.h - what a Redis server says about its processor time and its memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_REDIS_USAGE_H
#define TDM_BENCH_REDIS_USAGE_H

#include <stdint.h>

/* Greatest size in bytes of a reply to INFO. */
enum { REDIS_USAGE_BYTES = 65536 };

/* A connection on which a server is asked; all calls block. Every failure ends the program. */
struct redis_usage {
    int fd;                       /* Connection to the server (owned). */
    char text[REDIS_USAGE_BYTES]; /* The last reply to INFO. */
};

/* Connects to the server at a port of 127.0.0.1. */
void redis_usage_open(struct redis_usage *usage, uint16_t port);
/* Closes the connection. */
void redis_usage_close(struct redis_usage *usage);

/* Asks for a section of INFO, such as "memory", of which redis_usage_number() reads numbers. */
void redis_usage_ask(struct redis_usage *usage, const char *section);
/* Returns a number of the section that was asked for last, such as "used_memory"; 0 if it is not
 * there. */
double redis_usage_number(const struct redis_usage *usage, const char *name);
/* Returns the processor time that the server has used, in seconds. */
double redis_usage_seconds(struct redis_usage *usage);

/* Writes a value of `bytes` bytes by a plain SET, and waits for the reply. */
void redis_usage_set(const struct redis_usage *usage, int bytes);

#endif
