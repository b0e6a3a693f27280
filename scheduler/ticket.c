/* ticket.c - the rule by which a placement group that waits is placed against endless smaller
 * requests. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/ticket.h"

#include <string.h>

_Static_assert(TDM__TICKET_TURN_MS_MAX == 64 * TDM__TICKET_PATIENCE_MS,
               "turns grow by four up to the longest");

uint32_t tdm__ticket_turn(int64_t age_ms)
{
    int64_t begin_ms = TDM__TICKET_PATIENCE_MS;
    uint32_t turn = 1;

    if (age_ms < begin_ms) {
        return 0;
    }
    while (begin_ms < TDM__TICKET_TURN_MS_MAX && age_ms >= 4 * begin_ms) {
        begin_ms *= 4;
        turn++;
    }
    if (begin_ms == TDM__TICKET_TURN_MS_MAX) { /* From here on all turns have one length. */
        int64_t period_ms = 3 * (int64_t)TDM__TICKET_TURN_MS_MAX;

        turn += (uint32_t)((age_ms - begin_ms) / period_ms);
        age_ms = begin_ms + (age_ms - begin_ms) % period_ms;
    }
    return age_ms < 2 * begin_ms ? turn : 0;
}

/* Returns whether the ticket `a` comes before the ticket `b`. */
static bool ticket_is_before(const struct tdm__ticket *a, const struct tdm__ticket *b)
{
    return a->number != b->number
               ? a->number < b->number
               : memcmp(a->group.bytes, b->group.bytes, sizeof(a->group.bytes)) < 0;
}

bool tdm__ticket_keeps_from(const struct tdm__ticket *kept, const struct tdm__ticket *own,
                            bool has_turn)
{
    if (tdm__id_is_none(&kept->group) || tdm__id_equal(&kept->group, &own->group)) {
        return false;
    }
    return !(has_turn && ticket_is_before(own, kept));
}
