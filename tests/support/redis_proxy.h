/* redis_proxy.h - a process between a daemon and Redis, which a test can stop. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_REDIS_PROXY_H
#define TDM_TESTS_SUPPORT_REDIS_PROXY_H

#include "tests/support/redis_fixture.h"

#include <sys/types.h>

/* A process that copies bytes between clients and the Redis server of a fixture. */
struct redis_proxy {
    pid_t pid;    /* The process; 0 if there is none. */
    char url[96]; /* URL of Redis by way of the proxy. */
};

/* Starts the proxy, in the directory of the fixture. Returns 0, or 1 if that fails. */
int redis_proxy_start(struct redis_proxy *proxy, const struct redis_fixture *redis);
/* Nothing passes any more, and no connection closes: a cut link. */
void redis_proxy_stop(const struct redis_proxy *proxy);
void redis_proxy_continue(const struct redis_proxy *proxy);
/* Ends the process. A proxy that was not started is allowed. */
void redis_proxy_end(struct redis_proxy *proxy);

#endif
