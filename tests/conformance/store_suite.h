/* store_suite.h - what every filling of the store must do. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_STORE_SUITE_H
#define TDM_TESTS_STORE_SUITE_H

#include "runtime/store.h"

#include <stdbool.h>

/* The store under test; the tests of one process use it one after the other, each with keys of
 * its own. */
struct store_fixture {
    struct tdm__loop *loop;
    struct tdm__store *store;
};

/* ---- asking and waiting for the reply -------------------------------------------------- */

struct store_reply {
    bool ended;
    tdm_status status;
    uint64_t version; /* that a commit says */
    uint32_t count;
    struct {
        char key[210];
        uint64_t version;
        char bytes[64];
        size_t size_bytes;
    } records[16];
};

void store_on_read(void *reply, tdm_status status, const struct tdm__store_record *records,
                   uint32_t records_count);
void store_on_commit(void *reply, tdm_status status, const struct tdm__store_committed *committed);
bool store_has_ended(void *reply);

/* Asks, and asks again when the reply comes, then closes the store: both are told. */
void store_expect_replies_on_close(struct tdm__store *store);

struct store_reply store_read(struct store_fixture *fixture, const char *pattern);
struct store_reply store_commit_reply(struct store_fixture *fixture,
                                      const struct tdm__store_write *writes, uint32_t writes_count);
tdm_status store_commit(struct store_fixture *fixture, const struct tdm__store_write *writes,
                        uint32_t writes_count);
tdm_status store_put(struct store_fixture *fixture, const char *key, const char *text,
                     uint64_t version, int64_t lease_ms);
tdm_status store_delete(struct store_fixture *fixture, const char *key, uint64_t version);
uint64_t store_version(struct store_fixture *fixture, const char *key); /* 0: not there */
/* Runs the loop until `done`; fails the test after ten seconds. */
void store_run_until(struct store_fixture *fixture, bool (*done)(void *arg), void *arg);
void store_run_for(struct store_fixture *fixture, int64_t ms);

/* ---- the tests -------------------------------------------------------------------------- */

/* Runs all as one cmocka group over the store that `setup` puts into *state. */
int store_suite_run(int (*setup)(void **state), int (*teardown)(void **state));

/* Eight transactions at a time add 1 to a counter, fifty times each, and put a mark beside it,
 * so that one whose outcome is unknown can be run again: in the end it is 400 exactly.
 * Returns how many outcomes were unknown. */
uint32_t store_suite_counts_exactly(struct store_fixture *fixture, const char *counter);

/* The outcome of one renewal. */
struct renewal_reply {
    bool ended;
    tdm_status status;
    struct tdm__store_renewed renewed;
    bool has_list;
    uint32_t members_count;
    char members[4][32]; /* Keys of the first members of the list. */
};

struct renewal_reply store_renew(struct store_fixture *fixture,
                                 const struct tdm__store_renewal *renewal);

#endif
