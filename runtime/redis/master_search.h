/* master_search.h - decides what a connection to Redis contacts next, and after which delay. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_REDIS_MASTER_SEARCH_H
#define TDM_RUNTIME_REDIS_MASTER_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

/* Shortest and longest delay between attempts to connect, in milliseconds. */
enum { TDM__MASTER_SEARCH_DELAY_MS_MIN = 10, TDM__MASTER_SEARCH_DELAY_MS_MAX = 1000 };

/* The state of the search for the server of a connection. With sentinels an attempt either asks one
 * of them for the master, or connects to the master that a sentinel has named. The sentinels are
 * asked in turn, beginning with the one that has named a master last. Without sentinels each
 * attempt connects to the only server there is. The state machine does no I/O. */
struct tdm__master_search {
    uint32_t sentinels_count; /* Number of sentinels; 0 if the server is given. */
    uint32_t sentinel;        /* Index of the sentinel that is asked next, or was asked last. */
    /* Number of sentinels that have failed one after another since the last delay. */
    uint32_t failed_count;
    bool is_named;    /* Whether a sentinel has named the master, to which the next attempt goes. */
    bool is_ready;    /* Whether there is a connection with the server that accepts commands. */
    int64_t delay_ms; /* Next delay between attempts, in milliseconds. */
};

/* Initialises the search of a connection with this number of sentinels. */
void tdm__master_search_init(struct tdm__master_search *search, uint32_t sentinels_count);
/* Returns whether the next attempt asks the sentinel `search->sentinel`; else it connects to the
 * server. */
bool tdm__master_search_asks(const struct tdm__master_search *search);
/* Notes that the sentinel which was asked has named the master: the next attempt connects to it. */
void tdm__master_search_named(struct tdm__master_search *search);
/* Notes that the sentinel which was asked has not named a master. Returns the milliseconds until
 * the next attempt, which asks the next one: 0 until all of them have failed. */
int64_t tdm__master_search_sentinel_failed(struct tdm__master_search *search);
/* Notes that the connection with the server accepts commands. */
void tdm__master_search_ready(struct tdm__master_search *search);
/* Notes that the server, whose connection is ready and will be ended, may not be the master any
 * more. The next sentinel is asked then, because the one that has named the server may be cut off
 * from the others together with it. */
void tdm__master_search_doubted(struct tdm__master_search *search);
/* Notes that the attempt to connect to the server has failed, or that the connection with it has
 * ended. Returns the milliseconds until the next attempt. If the server has never been ready, the
 * next sentinel is asked, because the one that has named it may not know the present master. */
int64_t tdm__master_search_server_failed(struct tdm__master_search *search);

#endif
