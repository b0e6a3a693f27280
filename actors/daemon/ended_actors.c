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

/* Removes and frees the lost actor to which `*link` points. */
static void lost_actor_remove(struct tdm__lost_actor **link)
{
    struct tdm__lost_actor *lost = *link;

    *link = lost->next;
    free(lost);
}

void tdm__ended_actors_destroy(struct tdm__node *node)
{
    for (uint32_t i = 0; node->ended_actors != NULL && i < TDM__ENDED_ACTORS_MAX; i++) {
        free(node->ended_actors->records[i].bytes);
    }
    while (node->ended_actors != NULL && node->ended_actors->lost != NULL) {
        lost_actor_remove(&node->ended_actors->lost);
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

/* Keeps a copy of the record of an actor that was lost with its node, behind those that were lost
 * earlier. Without memory, or for an empty record, the actor is not listed. */
static void lost_actors_keep(struct tdm__ended_actors *ended, const struct tdm__id *creator,
                             struct tdm_bytes record)
{
    struct tdm__lost_actor **link = &ended->lost;
    struct tdm__lost_actor *lost =
        record.size_bytes == 0 ? NULL : malloc(sizeof(*lost) + record.size_bytes);

    if (lost == NULL) {
        return;
    }
    *lost = (struct tdm__lost_actor){.creator = *creator, .size_bytes = record.size_bytes};
    memcpy(lost->bytes, record.data, record.size_bytes);
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = lost;
    if (++ended->lost_count > TDM__LOST_ACTORS_MAX) {
        lost_actor_remove(&ended->lost);
        ended->lost_count--;
    }
}

void tdm__ended_actors_creator_left(struct tdm__node *node, const struct tdm__id *creator)
{
    struct tdm__lost_actor **link = node->ended_actors == NULL ? NULL : &node->ended_actors->lost;

    while (link != NULL && *link != NULL) {
        if (tdm__id_equal(&(*link)->creator, creator)) {
            lost_actor_remove(link);
            node->ended_actors->lost_count--;
        } else {
            link = &(*link)->next;
        }
    }
}

void tdm__ended_actors_add(struct tdm__node *node, const struct actor_entry *entry,
                           const char *text)
{
    struct tdm__ended_actors *ended = node->ended_actors;
    bool is_remote = tdm__actor_state_is_remote(entry->lifecycle.state);
    tdm_writer *writer;

    if (ended == NULL || node->stopping || entry->is_disowned ||
        (is_remote && !entry->is_lost_with_node) || tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    tdm__state_write_actor(writer, entry, text);
    if (tdm_writer_status(writer) == TDM_OK && is_remote) {
        lost_actors_keep(ended, &entry->spec->creator, tdm_writer_bytes(writer));
    } else if (tdm_writer_status(writer) == TDM_OK) {
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
    return count + node->ended_actors->lost_count;
}

/* Writes an array of the records of lost, ended and present actors of the node `arg`. */
static void write_actor_records(tdm_writer *writer, const void *arg)
{
    const struct tdm__node *node = arg;
    const struct tdm__ended_actors *ended = node->ended_actors;

    tdm_write_array(writer, count_actor_records(node));
    for (const struct tdm__lost_actor *lost = ended->lost; lost != NULL; lost = lost->next) {
        tdm_write_packed(writer, (struct tdm_bytes){lost->bytes, lost->size_bytes});
    }
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
