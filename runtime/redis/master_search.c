/* master_search.c - decides what a connection to Redis contacts next, and after which delay. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/master_search.h"

void tdm__master_search_init(struct tdm__master_search *search, uint32_t sentinels_count)
{
    *search = (struct tdm__master_search){.sentinels_count = sentinels_count,
                                          .delay_ms = TDM__MASTER_SEARCH_DELAY_MS_MIN};
}

/* Moves on to the next sentinel in turn. */
static void search_advance(struct tdm__master_search *search)
{
    if (search->sentinels_count > 0) {
        search->sentinel = (search->sentinel + 1) % search->sentinels_count;
    }
}

/* Returns the delay before the next attempt, and doubles the one after it. */
static int64_t search_back_off(struct tdm__master_search *search)
{
    int64_t delay_ms = search->delay_ms;

    search->delay_ms *= 2;
    if (search->delay_ms > TDM__MASTER_SEARCH_DELAY_MS_MAX) {
        search->delay_ms = TDM__MASTER_SEARCH_DELAY_MS_MAX;
    }
    return delay_ms;
}

bool tdm__master_search_asks(const struct tdm__master_search *search)
{
    return search->sentinels_count > 0 && !search->is_named;
}

void tdm__master_search_named(struct tdm__master_search *search)
{
    search->is_named = true;
    search->failed_count = 0;
}

int64_t tdm__master_search_sentinel_failed(struct tdm__master_search *search)
{
    search_advance(search);
    search->failed_count++;
    if (search->failed_count < search->sentinels_count) {
        return 0;
    }
    search->failed_count = 0;
    return search_back_off(search);
}

void tdm__master_search_ready(struct tdm__master_search *search)
{
    search->is_ready = true;
    search->delay_ms = TDM__MASTER_SEARCH_DELAY_MS_MIN;
}

void tdm__master_search_doubted(struct tdm__master_search *search)
{
    search_advance(search);
}

int64_t tdm__master_search_server_failed(struct tdm__master_search *search)
{
    if (!search->is_ready) {
        search_advance(search);
    }
    search->is_named = false;
    search->is_ready = false;
    return search_back_off(search);
}
