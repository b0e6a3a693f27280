/* children.c - the calls that a method makes: canceled with it where that is asked for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/children.h"

#include "actors/link.h"
#include "actors/traffic.h"

static _Thread_local uint64_t current;

uint64_t tdm__children_of(uint64_t parent)
{
    uint64_t before = current;

    current = parent;
    return before;
}

uint64_t tdm__children_parent(void)
{
    return current;
}

static struct tdm__outgoing *find_in(const struct tdm__outgoings *list, uint64_t parent)
{
    struct tdm__outgoing *outgoing = TAILQ_FIRST(list);

    while (outgoing != NULL && (outgoing->parent != parent || outgoing->settled)) {
        outgoing = TAILQ_NEXT(outgoing, entry);
    }
    return outgoing;
}

static struct tdm__outgoing *find_child(const tdm_runtime *runtime, uint64_t parent)
{
    struct tdm__outgoing *found = NULL;

    for (struct tdm__link *link = runtime->links; link != NULL && found == NULL;
         link = link->next) {
        found = find_in(&link->waiting, parent);
        found = found != NULL ? found : find_in(&link->pausing, parent);
        found = found != NULL ? found : find_in(&link->flying, parent);
    }
    return found;
}

/* With each of them others may go, and links: it looks anew. */
void tdm__children_cancel(tdm_runtime *runtime, uint64_t parent)
{
    struct tdm__outgoing *child;

    while (runtime != NULL && (child = find_child(runtime, parent)) != NULL) {
        tdm__traffic_cancel(child, true);
    }
}
