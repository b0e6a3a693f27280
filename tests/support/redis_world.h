/* redis_world.h - a loop, an embedded redis-server in a directory of its own, a store in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_REDIS_WORLD_H
#define TDM_TESTS_REDIS_WORLD_H

#include "runtime/redis/embedded.h"
#include "tests/conformance/store_suite.h"

struct redis_world {
    struct store_world base; /* first: the suite's view */
    struct tdm__redis_embedded *server;
    char directory[64];
};

/* 0, as cmocka wants it. */
int redis_world_open(struct redis_world *world);
void redis_world_close(struct redis_world *world);
/* Removes a directory and all in it. */
void remove_tree(const char *directory);

#endif
