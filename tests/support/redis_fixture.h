/* redis_fixture.h - a loop, an embedded redis-server in a directory of its own, a store in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_REDIS_FIXTURE_H
#define TDM_TESTS_SUPPORT_REDIS_FIXTURE_H

#include "runtime/redis/embedded.h"
#include "tests/conformance/store_suite.h"

struct redis_fixture {
    struct store_fixture base; /* The view of the conformance suite; must be the first field. */
    struct tdm__redis_embedded *server;
    char directory[64];
};

/* Opens the fixture. Returns 0, which cmocka expects. */
int redis_fixture_open(struct redis_fixture *world);
void redis_fixture_close(struct redis_fixture *world);
/* Removes a directory and its contents. */
void remove_tree(const char *directory);

#endif
