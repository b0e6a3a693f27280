/* nodes_snapshot.c - all nodes of the cluster with their free resources, as a transaction read
 * them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding the records of a thousand nodes takes milliseconds, and few of them change between two
 * placements. So the decoded records stay with the read cache of the transactions, each with the
 * version from which it was decoded. The store gives each change of a record a new version and
 * never uses one twice, so a record with a known version is known. What a body changes in its
 * snapshot, to compute what it writes, is decoded again the next time. Everything runs on the
 * loop's thread. */

#include "scheduler/nodes_snapshot.h"

#include "runtime/error.h"
#include "runtime/store/read_cache.h"
#include "scheduler/ticket.h"

#include <stdlib.h>
#include <string.h>

/* Length of the prefixes node/ and free/. */
enum { PREFIX_BYTES = 5 };

/* From which records a node was decoded. */
struct decoded_versions {
    char id[TDM__ID_TEXT_BYTES]; /* ID of the node, as in the keys. */
    uint64_t node;               /* Version of node/ID; 0 if the record must be decoded again. */
    uint64_t free;               /* Version of free/ID; 0 if the record must be decoded again. */
};

struct tdm__decoded_nodes {
    uint32_t count;                        /* Number of nodes. */
    uint32_t capacity;                     /* Capacity of the three arrays. */
    struct decoded_versions *versions;     /* Versions of the nodes' records (owned). */
    struct tdm__node_record *nodes;        /* Records of the nodes, sorted by ID (owned). */
    struct tdm__node_resources *resources; /* Resources of the nodes, in the same order (owned). */
    struct tdm__last_placed last_placed;   /* Where the last actor was placed. */
};

/* Frees decoded nodes. */
static void decoded_destroy(void *arg)
{
    struct tdm__decoded_nodes *decoded = arg;

    free(decoded->versions);
    free(decoded->nodes);
    free(decoded->resources);
    free(decoded);
}

/* Makes room for one more node. */
static tdm_status decoded_reserve(struct tdm__decoded_nodes *decoded)
{
    uint32_t capacity = decoded->capacity == 0 ? 16 : 2 * decoded->capacity;
    struct decoded_versions *versions;
    struct tdm__node_record *nodes;
    struct tdm__node_resources *resources;

    if (decoded->count < decoded->capacity) {
        return TDM_OK;
    }
    versions = realloc(decoded->versions, capacity * sizeof(*versions));
    decoded->versions = versions != NULL ? versions : decoded->versions;
    nodes = realloc(decoded->nodes, capacity * sizeof(*nodes));
    decoded->nodes = nodes != NULL ? nodes : decoded->nodes;
    resources = realloc(decoded->resources, capacity * sizeof(*resources));
    decoded->resources = resources != NULL ? resources : decoded->resources;
    if (versions == NULL || nodes == NULL || resources == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a snapshot of %u nodes", capacity);
    }
    memset(&versions[decoded->capacity], 0, (capacity - decoded->capacity) * sizeof(versions[0]));
    decoded->capacity = capacity;
    return TDM_OK;
}

/* Decodes the records of a node as entry number `index`, unless that entry has these versions. */
static tdm_status decoded_update(struct tdm__decoded_nodes *decoded, uint32_t index,
                                 const struct tdm__store_record *node,
                                 const struct tdm__store_record *resources)
{
    struct decoded_versions *versions = &decoded->versions[index];
    const char *id = node->key + PREFIX_BYTES;
    bool is_same = strncmp(versions->id, id, sizeof(versions->id)) == 0;

    if (!is_same || versions->node != node->version) {
        versions->node = 0;
        TDM_TRY(tdm__node_record_read(node, &decoded->nodes[index]));
    }
    if (!is_same || versions->free != resources->version) {
        versions->free = 0;
        TDM_TRY(tdm__free_record_read(resources, &decoded->resources[index]));
    }
    if (!is_same) {
        (void)tdm__id_text(&decoded->nodes[index].id, versions->id);
    }
    versions->node = node->version;
    versions->free = resources->version;
    return TDM_OK;
}

/* Returns the record free/ID of the node with this ID, or NULL. `at` is the index of the record
 * from which to search, which grows with the IDs: the records are sorted by key. */
static const struct tdm__store_record *next_free(const struct tdm__txn *txn, const char *id,
                                                 uint32_t *at)
{
    for (; *at < tdm__txn_records_count(txn); ++*at) {
        const struct tdm__store_record *record = tdm__txn_record_at(txn, *at);
        int order = strncmp(record->key, "free/", PREFIX_BYTES);

        order = order != 0 ? order : strcmp(record->key + PREFIX_BYTES, id);
        if (order >= 0) {
            return order == 0 ? record : NULL;
        }
    }
    return NULL;
}

/* Brings the decoded nodes up to date with what the transaction has read. A node without a record
 * of its resources, because its lease is just ending, is left out. */
static tdm_status decoded_read(struct tdm__decoded_nodes *decoded, const struct tdm__txn *txn)
{
    uint32_t at = 0;

    decoded->count = 0;
    for (uint32_t i = 0; i < tdm__txn_records_count(txn); i++) {
        const struct tdm__store_record *record = tdm__txn_record_at(txn, i);
        const struct tdm__store_record *resources;

        if (strncmp(record->key, "node/", PREFIX_BYTES) != 0) {
            continue;
        }
        resources = next_free(txn, record->key + PREFIX_BYTES, &at);
        if (resources != NULL) {
            TDM_TRY(decoded_reserve(decoded));
            TDM_TRY(decoded_update(decoded, decoded->count, record, resources));
            decoded->count++;
        }
    }
    return TDM_OK;
}

/* Orders node records by their IDs, for bsearch(). */
static int compare_node_ids(const void *left, const void *right)
{
    const struct tdm__node_record *one = left;
    const struct tdm__node_record *other = right;

    return memcmp(one->id.bytes, other->id.bytes, sizeof(one->id.bytes));
}

/* Applies what earlier parts of the transaction's body have written to free resources. */
static tdm_status decoded_apply_changes(struct tdm__decoded_nodes *decoded,
                                        const struct tdm__txn *txn)
{
    for (uint32_t i = 0; decoded->count > 0 && i < tdm__txn_changes_count(txn); i++) {
        const struct tdm__store_record *record = tdm__txn_change_at(txn, i);
        struct tdm__node_record wanted;
        const struct tdm__node_record *node;

        if (record == NULL || strncmp(record->key, "free/", PREFIX_BYTES) != 0) {
            continue;
        }
        TDM_TRY(tdm__id_parse(record->key + PREFIX_BYTES, &wanted.id));
        node = bsearch(&wanted, decoded->nodes, decoded->count, sizeof(wanted), compare_node_ids);
        if (node != NULL) {
            decoded->versions[node - decoded->nodes].free = 0;
            TDM_TRY(tdm__free_record_read(record, &decoded->resources[node - decoded->nodes]));
        }
    }
    return TDM_OK;
}

/* Returns the decoded nodes that the transaction's read cache keeps, or new ones. */
static struct tdm__decoded_nodes *decoded_of(const struct tdm__txn *txn, bool *is_new_out)
{
    struct tdm__read_cache *read_cache = tdm__txn_read_cache(txn);
    struct tdm__decoded_nodes *decoded =
        read_cache == NULL ? NULL : tdm__read_cache_companion(read_cache);

    *is_new_out = read_cache == NULL;
    if (decoded == NULL) {
        decoded = calloc(1, sizeof(*decoded));
        if (decoded != NULL && read_cache != NULL) {
            tdm__read_cache_set_companion(read_cache, decoded, decoded_destroy);
        }
    }
    return decoded;
}

tdm_status tdm__nodes_snapshot_read(const struct tdm__txn *txn,
                                    struct tdm__nodes_snapshot *snapshot_out)
{
    struct tdm__nodes_snapshot snapshot = {0};
    tdm_status status;

    snapshot.decoded = decoded_of(txn, &snapshot.owns_decoded);
    if (snapshot.decoded == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a snapshot of %u records", tdm__txn_records_count(txn));
    }
    status = decoded_read(snapshot.decoded, txn);
    if (status == TDM_OK) {
        status = decoded_apply_changes(snapshot.decoded, txn);
    }
    if (status != TDM_OK) {
        tdm__nodes_snapshot_fini(&snapshot);
        return status;
    }
    snapshot.nodes_count = snapshot.decoded->count;
    snapshot.nodes = snapshot.decoded->nodes;
    snapshot.resources = snapshot.decoded->resources;
    *snapshot_out = snapshot;
    return TDM_OK;
}

struct tdm__node_resources *tdm__nodes_snapshot_change(struct tdm__nodes_snapshot *snapshot,
                                                       uint32_t index)
{
    snapshot->decoded->versions[index].free = 0;
    return &snapshot->decoded->resources[index];
}

struct tdm__node_resources *tdm__nodes_snapshot_find(struct tdm__nodes_snapshot *snapshot,
                                                     const struct tdm__id *node)
{
    for (uint32_t i = 0; i < snapshot->nodes_count; i++) {
        if (tdm__id_equal(&snapshot->nodes[i].id, node)) {
            return tdm__nodes_snapshot_change(snapshot, i);
        }
    }
    return NULL; /* The node is lost with all its resources. */
}

/* Returns whether the node is in the cluster. */
static bool snapshot_has_node(const struct tdm__nodes_snapshot *snapshot,
                              const struct tdm__id *node)
{
    return tdm__node_records_contain(snapshot->nodes, snapshot->nodes_count, node);
}

void tdm__nodes_snapshot_apply_tickets(struct tdm__nodes_snapshot *snapshot,
                                       const struct tdm__ticket *own, bool has_turn)
{
    for (uint32_t i = 0; i < snapshot->nodes_count; i++) {
        /* Not a change of what the record says, so the record need not be decoded again. */
        struct tdm__node_resources *node = &snapshot->decoded->resources[i];

        node->is_kept = !tdm__id_is_none(&node->ticket.group) &&
                        snapshot_has_node(snapshot, &node->ticket.owner_node) &&
                        tdm__ticket_keeps_from(&node->ticket, own, has_turn);
    }
}

struct tdm__last_placed *tdm__nodes_snapshot_last_placed(struct tdm__nodes_snapshot *snapshot)
{
    return &snapshot->decoded->last_placed;
}

void tdm__nodes_snapshot_fini(struct tdm__nodes_snapshot *snapshot)
{
    if (snapshot->owns_decoded && snapshot->decoded != NULL) {
        decoded_destroy(snapshot->decoded);
    }
    *snapshot = (struct tdm__nodes_snapshot){0};
}
