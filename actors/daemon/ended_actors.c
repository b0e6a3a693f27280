/* ended_actors.c - remembers the actors that ended last, and lists the actors of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/ended_actors.h"

#include "actors/daemon/state_records.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

tdm_status tdm__ended_actors_create(struct tdm__node *node)
{
    node->ended_actors = calloc(1, sizeof(*node->ended_actors));
    return node->ended_actors == NULL ? tdm__fail(TDM_E_NOMEM, "the table of ended actors")
                                      : TDM_OK;
}

void tdm__ended_actors_destroy(struct tdm__node *node)
{
    for (uint32_t i = 0; node->ended_actors != NULL && i < TDM__ENDED_ACTORS_MAX; i++) {
        free(node->ended_actors->records[i].bytes);
    }
    free(node->ended_actors);
    node->ended_actors = NULL;
}

/* Overwrites the oldest record of the ring with a copy of `record`. Without memory, or for an empty
 * record, the ring stays as it is. */
static void ended_actors_keep(struct tdm__ended_actors *ended, struct tdm_bytes record)
{
    void *copy = record.size_bytes == 0 ? NULL : malloc(record.size_bytes);

    if (copy == NULL) {
        return;
    }
    memcpy(copy, record.data, record.size_bytes);
    free(ended->records[ended->next].bytes);
    ended->records[ended->next].bytes = copy;
    ended->records[ended->next].size_bytes = record.size_bytes;
    ended->next = (ended->next + 1) % TDM__ENDED_ACTORS_MAX;
}

void tdm__ended_actors_add(struct tdm__node *node, const struct actor_entry *entry,
                           const char *text)
{
    struct tdm__ended_actors *ended = node->ended_actors;
    tdm_writer *writer;

    if (ended == NULL || node->stopping || tdm__actor_state_is_remote(entry->lifecycle.state) ||
        tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    tdm__state_write_actor(writer, entry, text);
    if (tdm_writer_status(writer) == TDM_OK) {
        ended_actors_keep(ended, tdm_writer_bytes(writer));
    }
    ended->count++;
    tdm_writer_destroy(writer);
}

/* True if the actor runs on this node; the daemon of another node lists its own actors. */
static bool is_on_this_node(const struct actor_entry *entry)
{
    return !tdm__actor_state_is_remote(entry->lifecycle.state);
}

/* Returns the number of records that write_actor_records() writes. */
static uint32_t count_actor_records(const struct tdm__node *node)
{
    uint32_t count = 0;

    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        count += is_on_this_node(entry) ? 1 : 0;
    }
    for (uint32_t i = 0; i < TDM__ENDED_ACTORS_MAX; i++) {
        count += node->ended_actors->records[i].bytes != NULL ? 1 : 0;
    }
    return count;
}

/* Writes an array of the records of ended and present actors of the node `arg`. */
static void write_actor_records(tdm_writer *writer, const void *arg)
{
    const struct tdm__node *node = arg;
    const struct tdm__ended_actors *ended = node->ended_actors;

    tdm_write_array(writer, count_actor_records(node));
    for (uint32_t i = 0; i < TDM__ENDED_ACTORS_MAX; i++) { /* The oldest record comes first. */
        uint32_t at = (ended->next + i) % TDM__ENDED_ACTORS_MAX;

        if (ended->records[at].bytes != NULL) {
            tdm_write_packed(writer, (struct tdm_bytes){ended->records[at].bytes,
                                                        ended->records[at].size_bytes});
        }
    }
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (is_on_this_node(entry)) {
            tdm__state_write_actor(writer, entry, NULL);
        }
    }
}

void tdm__state_write_actors(tdm_writer *writer, const struct tdm__node *node)
{
    const struct tdm__node_state_list_message message = {
        .records = {.write = write_actor_records, .arg = node}};

    (void)tdm__node_state_list_encode(&message, writer);
}
