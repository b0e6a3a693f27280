/* records.c - the records about nodes, actors and placement groups in the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
/* For each kind of record there is a pair of functions: one reads and checks a record of a
 * transaction, the other adds its write to the transaction. They copy between the structures of
 * records.h and the messages of runtime/messages/scheduling.def. Every error names the key.
 *
 * A group's name is a record of its own that contains the group's ID. Claiming and releasing it are
 * conditional, so both can be repeated after an unknown outcome. The functions keep no state; they
 * run inside the body of a transaction, on the loop's thread. */

#include "scheduler/records.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/store/txn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tdm__store_key(const char *kind, const struct tdm__id *id,
                           char key[TDM__STORE_KEY_BYTES])
{
    char text[TDM__ID_TEXT_BYTES];

    (void)snprintf(key, TDM__STORE_KEY_BYTES, "%s/%s", kind, tdm__id_text(id, text));
    return key;
}

/* ---- helpers of all records ------------------------------------------------------------- */

/* Copies a text of a record into the array `target` of `room` bytes. Fails if the text does not
 * fit. */
static tdm_status copy_text(const char *text, char *target, size_t room)
{
    if (strlen(text) >= room) {
        return tdm__fail(TDM_E_PROTOCOL, "a text of %zu bytes where at most %zu fit", strlen(text),
                         room - 1);
    }
    memcpy(target, text, strlen(text) + 1);
    return TDM_OK;
}

/* Decodes one kind of record from its value into the structure `target`. */
typedef tdm_status read_fn(const tdm_value *value, void *target);

/* Parses the bytes of a record and passes the value to `read`, which fills `target`. Errors name
 * the record's key. */
static tdm_status record_decode(const struct tdm__store_record *record, read_fn *read, void *target)
{
    tdm_document *document;
    tdm_status status = tdm_document_parse(record->bytes, &document);

    if (status == TDM_OK) {
        status = read(tdm_document_root(document), target);
        tdm_document_destroy(document);
    }
    return tdm__wrap(status, "record %s", record->key);
}

/* Encodes one kind of record from the structure `source`. */
typedef void write_fn(tdm_writer *writer, const void *source);

/* Encodes a record with `write` from the structure `source`, and adds the write of `key` to the
 * transaction. */
static tdm_status record_put(struct tdm__txn *txn, const char *key, int64_t lease_ms,
                             write_fn *write, const void *source)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    write(writer, source);
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm__txn_put(txn, key, tdm_writer_bytes(writer), lease_ms);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- node/ID and free/ID ---------------------------------------------------------------- */

/* Encodes the record of a node (struct tdm__node_record). */
static void write_node(tdm_writer *writer, const void *source)
{
    const struct tdm__node_record *node = source;
    const struct tdm__node_record_message message = {.id = node->id,
                                                     .name = node->name,
                                                     .unix_address = node->unix_address,
                                                     .tcp_address = node->tcp_address,
                                                     .pid = node->pid,
                                                     .lease_ms = tdm__node_lease_ms(node),
                                                     .lives_since = (int64_t)node->lives_since};

    (void)tdm__node_record_encode(&message, writer);
}

/* Decodes the record of a node (struct tdm__node_record). */
static tdm_status read_node(const tdm_value *value, void *target)
{
    struct tdm__node_record *node = target;
    struct tdm__node_record_message message;

    TDM_TRY(tdm__node_record_decode(value, &message));
    node->id = message.id;
    TDM_TRY(copy_text(message.name, node->name, sizeof(node->name)));
    TDM_TRY(copy_text(message.unix_address, node->unix_address, sizeof(node->unix_address)));
    TDM_TRY(copy_text(message.tcp_address, node->tcp_address, sizeof(node->tcp_address)));
    node->pid = message.pid;
    node->lease_ms = message.lease_ms;
    node->lives_since = (uint64_t)message.lives_since;
    return TDM_OK;
}

tdm_status tdm__node_record_read(const struct tdm__store_record *record,
                                 struct tdm__node_record *node_out)
{
    TDM_TRY(record_decode(record, read_node, node_out));
    node_out->epoch = record->version;
    return TDM_OK;
}

bool tdm__node_records_contain(const struct tdm__node_record *nodes, uint32_t nodes_count,
                               const struct tdm__id *id)
{
    for (uint32_t i = 0; i < nodes_count; i++) {
        if (tdm__id_equal(&nodes[i].id, id)) {
            return true;
        }
    }
    return false;
}

tdm_status tdm__node_record_put(struct tdm__txn *txn, const struct tdm__node_record *node)
{
    char key[TDM__STORE_KEY_BYTES];

    return record_put(txn, tdm__store_key("node", &node->id, key), tdm__node_lease_ms(node),
                      write_node, node);
}

int64_t tdm__node_lease_ms(const struct tdm__node_record *node)
{
    return node->lease_ms > 0 ? node->lease_ms : TDM__NODE_LEASE_MS;
}

tdm_status tdm__txn_require_node_unchanged(struct tdm__txn *txn, const struct tdm__id *node)
{
    char key[TDM__STORE_KEY_BYTES];

    return tdm__txn_require_unchanged(txn, tdm__store_key("node", node, key));
}

tdm_status tdm__txn_require_node_lost(struct tdm__txn *txn, const struct tdm__id *taker,
                                      const struct tdm__id *node)
{
    char key[TDM__STORE_KEY_BYTES];

    if (!tdm__id_is_none(taker)) {
        if (tdm__txn_find_record(txn, tdm__store_key("node", taker, key)) == NULL) {
            return tdm__fail(TDM_E_AGAIN, "the node that asks has not joined again yet");
        }
        TDM_TRY(tdm__txn_require_unchanged(txn, key));
    }
    return tdm__txn_require_lost(txn, tdm__store_key("node", node, key));
}

/* Encodes the resources of a node (struct tdm__node_resources). */
static void write_free(tdm_writer *writer, const void *source)
{
    tdm__node_resources_write(writer, source);
}

/* Decodes the resources of a node (struct tdm__node_resources). */
static tdm_status read_free(const tdm_value *value, void *target)
{
    return tdm__node_resources_read(value, target);
}

tdm_status tdm__free_record_read(const struct tdm__store_record *record,
                                 struct tdm__node_resources *node_out)
{
    return record_decode(record, read_free, node_out);
}

tdm_status tdm__free_record_put(struct tdm__txn *txn, const struct tdm__node_resources *node)
{
    char key[TDM__STORE_KEY_BYTES];

    return record_put(txn, tdm__store_key("free", &node->id, key), 0, write_free, node);
}

/* ---- actor/ID and name/SPACE/NAME ------------------------------------------------------- */

/* Encodes the record of an actor (struct tdm__actor_record). */
static void write_actor(tdm_writer *writer, const void *source)
{
    const struct tdm__actor_record *actor = source;
    const struct tdm__actor_record_message message = {.actor = actor->actor,
                                                      .node = actor->node,
                                                      .group = actor->group,
                                                      .bundle = actor->bundle,
                                                      .grant = tdm__grant_to_message(&actor->grant),
                                                      .name_key = actor->name_key,
                                                      .class_name = actor->class_name,
                                                      .owner_node = actor->owner_node,
                                                      .recreate_on_node_loss =
                                                          actor->recreate_on_node_loss,
                                                      .placements = actor->placements,
                                                      .granted = (int64_t)actor->granted};

    (void)tdm__actor_record_encode(&message, writer);
}

/* Decodes the record of an actor (struct tdm__actor_record). */
static tdm_status read_actor(const tdm_value *value, void *target)
{
    struct tdm__actor_record *actor = target;
    struct tdm__actor_record_message message;

    TDM_TRY(tdm__actor_record_decode(value, &message));
    actor->actor = message.actor;
    actor->node = message.node;
    actor->group = message.group;
    actor->bundle = message.bundle;
    TDM_TRY(tdm__grant_of_message(&message.grant, &actor->grant));
    TDM_TRY(copy_text(message.name_key, actor->name_key, sizeof(actor->name_key)));
    TDM_TRY(copy_text(message.class_name, actor->class_name, sizeof(actor->class_name)));
    actor->owner_node = message.owner_node;
    actor->recreate_on_node_loss = message.recreate_on_node_loss;
    actor->placements = message.placements;
    actor->granted = (uint64_t)message.granted;
    return TDM_OK;
}

tdm_status tdm__actor_record_read(const struct tdm__store_record *record,
                                  struct tdm__actor_record *actor_out)
{
    return record_decode(record, read_actor, actor_out);
}

tdm_status tdm__actor_record_put_unnamed(struct tdm__txn *txn,
                                         const struct tdm__actor_record *actor)
{
    char key[TDM__STORE_KEY_BYTES];

    return record_put(txn, tdm__store_key("actor", &actor->actor, key), 0, write_actor, actor);
}

tdm_status tdm__actor_name_put(struct tdm__txn *txn, const struct tdm__actor_record *actor)
{
    return record_put(txn, actor->name_key, 0, write_actor, actor);
}

tdm_status tdm__actor_record_put(struct tdm__txn *txn, const struct tdm__actor_record *actor)
{
    TDM_TRY(tdm__actor_record_put_unnamed(txn, actor));
    return actor->name_key[0] == '\0' ? TDM_OK : tdm__actor_name_put(txn, actor);
}

tdm_status tdm__actor_name_find(const struct tdm__txn *txn, const char *name_key,
                                const struct tdm__store_record **record_out,
                                struct tdm__actor_record *holder_out)
{
    *record_out = name_key[0] == '\0' ? NULL : tdm__txn_find_record(txn, name_key);
    return *record_out == NULL ? TDM_OK : tdm__actor_record_read(*record_out, holder_out);
}

tdm_status tdm__txn_change_node(struct tdm__txn *txn, const struct tdm__id *node_id,
                                const struct tdm__grant *left, const struct tdm__grant *came)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("free", node_id, key));
    struct tdm__node_resources node;

    if (record == NULL) {
        return tdm__txn_require_unchanged(txn, key);
    }
    TDM_TRY(tdm__free_record_read(record, &node));
    if (left != NULL && tdm__pool_release_grant(&node.pool, left) == TDM_OK) {
        node.actors_count -= node.actors_count > 0 ? 1 : 0;
    }
    if (came != NULL && tdm__pool_allocate_held_grant(&node.pool, came) == TDM_OK) {
        node.actors_count++;
    }
    return tdm__free_record_put(txn, &node);
}

/* ---- group/ID --------------------------------------------------------------------------- */

/* Returns bundle number `index` for the encoder of a message. */
static void get_bundle(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__bundle_record *bundle = &((const struct tdm__bundle_record *)arg)[index];
    struct tdm__bundle_record_message *item = item_out;

    *item = (struct tdm__bundle_record_message){
        bundle->node, tdm__resources_to_message(&bundle->wanted),
        tdm__grant_to_message(&bundle->grant), tdm__pool_to_message(&bundle->pool)};
}

/* Encodes the record of a placement group (struct tdm__placement_group_record). */
static void write_group(tdm_writer *writer, const void *source)
{
    const struct tdm__placement_group_record *group = source;
    const struct tdm__group_record_message message = {
        .name_space = group->name_space,
        .name = group->name,
        .detached = group->detached,
        .closed = group->closed,
        .placed = group->placed,
        .strategy = (int64_t)group->strategy,
        .owner_node = group->owner_node,
        .bundles = {.count = group->bundles_count, .get = get_bundle, .arg = group->bundles},
        .requesters = {.count = group->requesters_count, .items = group->requesters}};

    (void)tdm__group_record_encode(&message, writer);
}

/* Decodes all bundles of a placement group. */
static tdm_status read_bundles(const struct tdm__message_list *list,
                               struct tdm__bundle_record *bundles)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct tdm__bundle_record_message item;

        tdm__message_list_read(list, i, &item, sizeof(item));
        bundles[i].node = item.node;
        TDM_TRY(tdm__resources_of_message(&item.wanted, &bundles[i].wanted));
        TDM_TRY(tdm__grant_of_message(&item.grant, &bundles[i].grant));
        TDM_TRY(tdm__pool_of_message(&item.pool, &bundles[i].pool));
    }
    return TDM_OK;
}

/* Decodes the bundles and the requesters of a placement group, for which it allocates memory. */
static tdm_status read_group_lists(const struct tdm__group_record_message *message,
                                   struct tdm__placement_group_record *group)
{
    group->bundles = calloc(group->bundles_count, sizeof(*group->bundles));
    group->requesters = calloc(message->requesters.count + 1, sizeof(*group->requesters));
    if (group->bundles == NULL || group->requesters == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", group->bundles_count);
    }
    group->requesters_count = message->requesters.count;
    for (uint32_t i = 0; i < group->requesters_count; i++) {
        tdm__message_list_read(&message->requesters, i, &group->requesters[i],
                               sizeof(group->requesters[i]));
    }
    return read_bundles(&message->bundles, group->bundles);
}

/* Decodes the record of a placement group without its ID, and allocates its lists. */
static tdm_status read_group(const tdm_value *value, void *target)
{
    struct tdm__group_record_message message;
    struct tdm__placement_group_record group = {0};
    tdm_status status;

    TDM_TRY(tdm__group_record_decode(value, &message));
    group.bundles_count = message.bundles.count;
    if (group.bundles_count == 0 || group.bundles_count > TDM_BUNDLES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "a group of %u bundles", group.bundles_count);
    }
    if (message.strategy < TDM_PACK || message.strategy > TDM_STRICT_SPREAD) {
        return tdm__fail(TDM_E_PROTOCOL, "a group with strategy %lld", (long long)message.strategy);
    }
    TDM_TRY(copy_text(message.name_space, group.name_space, sizeof(group.name_space)));
    TDM_TRY(copy_text(message.name, group.name, sizeof(group.name)));
    group.detached = message.detached;
    group.closed = message.closed;
    group.placed = message.placed;
    group.strategy = (enum tdm_placement_strategy)message.strategy;
    group.owner_node = message.owner_node;
    status = read_group_lists(&message, &group);
    if (status != TDM_OK) {
        tdm__placement_group_record_fini(&group);
        return status;
    }
    *(struct tdm__placement_group_record *)target = group;
    return TDM_OK;
}

tdm_status tdm__placement_group_record_read(const struct tdm__store_record *record,
                                            struct tdm__placement_group_record *group_out)
{
    const char *slash = strchr(record->key, '/');
    struct tdm__id id;

    TDM_TRY(tdm__wrap(tdm__id_parse(slash == NULL ? "" : slash + 1, &id), "%s", record->key));
    TDM_TRY(record_decode(record, read_group, group_out));
    group_out->id = id;
    return TDM_OK;
}

tdm_status tdm__placement_group_record_copy(const struct tdm__placement_group_record *group,
                                            struct tdm__placement_group_record *copy_out)
{
    struct tdm__bundle_record *bundles = calloc(group->bundles_count, sizeof(*bundles));
    struct tdm__id *requesters = calloc(group->requesters_count + 1, sizeof(*requesters));

    if (bundles == NULL || requesters == NULL) {
        free(bundles);
        free(requesters);
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", group->bundles_count);
    }
    memcpy(bundles, group->bundles, group->bundles_count * sizeof(*bundles));
    for (uint32_t i = 0; i < group->requesters_count; i++) {
        requesters[i] = group->requesters[i];
    }
    *copy_out = *group;
    copy_out->bundles = bundles;
    copy_out->requesters = requesters;
    return TDM_OK;
}

tdm_status tdm__placement_group_record_pack(const struct tdm__placement_group_record *group,
                                            void **bytes_out, size_t *size_out)
{
    struct tdm_bytes packed;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    write_group(writer, group);
    status = tdm_writer_status(writer);
    packed = tdm_writer_bytes(writer);
    *bytes_out = status == TDM_OK ? malloc(packed.size_bytes) : NULL;
    if (status == TDM_OK && *bytes_out == NULL) {
        status = tdm__fail(TDM_E_NOMEM, "a group of %u bundles", group->bundles_count);
    }
    if (status == TDM_OK) {
        memcpy(*bytes_out, packed.data, packed.size_bytes);
        *size_out = packed.size_bytes;
    }
    tdm_writer_destroy(writer);
    return status;
}

void tdm__placement_group_record_fini(struct tdm__placement_group_record *group)
{
    free(group->bundles);
    group->bundles = NULL;
    free(group->requesters);
    group->requesters = NULL;
    group->requesters_count = 0;
}

bool tdm__placement_group_has_bundle_on(const struct tdm__placement_group_record *group,
                                        const struct tdm__id *node)
{
    for (uint32_t i = 0; i < group->bundles_count; i++) {
        if (tdm__id_equal(&group->bundles[i].node, node)) {
            return true;
        }
    }
    return false;
}

bool tdm__placement_group_has_member_on(const struct tdm__placement_group_record *group,
                                        const struct tdm__id *node)
{
    for (uint32_t i = 0; i < group->requesters_count; i++) {
        if (tdm__id_equal(&group->requesters[i], node)) {
            return true;
        }
    }
    return tdm__placement_group_has_bundle_on(group, node);
}

tdm_status tdm__placement_group_add_requester(struct tdm__placement_group_record *group,
                                              const struct tdm__id *node)
{
    struct tdm__id *requesters;

    if (tdm__id_is_none(node) || tdm__placement_group_has_member_on(group, node)) {
        return TDM_OK;
    }
    requesters = realloc(group->requesters, (group->requesters_count + 1) * sizeof(*requesters));
    if (requesters == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group with %u requesters", group->requesters_count + 1);
    }
    group->requesters = requesters;
    group->requesters[group->requesters_count++] = *node;
    return TDM_OK;
}

tdm_status tdm__placement_group_record_put(struct tdm__txn *txn, const char *key,
                                           const struct tdm__placement_group_record *group)
{
    return record_put(txn, key, 0, write_group, group);
}

tdm_status tdm__txn_change_bundle(struct tdm__txn *txn, const struct tdm__actor_record *actor,
                                  tdm__change_bundle_fn *fn, void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("group", &actor->group, key));
    struct tdm__placement_group_record group;
    tdm_status status;

    if (record == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "its placement group is gone");
    }
    TDM_TRY(tdm__placement_group_record_read(record, &group));
    status = actor->bundle < group.bundles_count
                 ? fn(arg, &group.bundles[actor->bundle].pool)
                 : tdm__fail(TDM_E_PROTOCOL, "bundle %u of a group of %u", actor->bundle,
                             group.bundles_count);
    if (status == TDM_OK) {
        status = tdm__placement_group_add_requester(&group, &actor->owner_node);
    }
    if (status == TDM_OK) {
        status = tdm__placement_group_record_put(txn, key, &group);
    }
    tdm__placement_group_record_fini(&group);
    return status;
}

/* ---- group_name/SPACE/NAME -------------------------------------------------------------- */

/* Encodes the record of a placement group's name: the ID of the group. */
static void write_name_owner(tdm_writer *writer, const void *source)
{
    tdm_write_bytes(writer, source, sizeof(struct tdm__id));
}

/* Decodes the record of a placement group's name: the ID of the group. */
static tdm_status read_name_owner(const tdm_value *value, void *target)
{
    struct tdm_bytes bytes = tdm_value_bytes(value);
    struct tdm__id *id = target;

    if (bytes.size_bytes != sizeof(id->bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "an id of %zu bytes, not %zu", bytes.size_bytes,
                         sizeof(id->bytes));
    }
    memcpy(id->bytes, bytes.data, sizeof(id->bytes));
    return TDM_OK;
}

const char *tdm__placement_group_name_key(const struct tdm__placement_group_record *group,
                                          char key[TDM__STORE_KEY_BYTES])
{
    key[0] = '\0';
    if (group->name[0] != '\0') {
        (void)tdm__name_key("group_name", group->name_space, group->name, key);
    }
    return key;
}

/* Sets `name_owner_out` to the ID of the placement group that has the name of `group`; all zero if
 * no group has that name. */
static tdm_status find_name_owner(const struct tdm__txn *txn,
                                  const struct tdm__placement_group_record *group,
                                  struct tdm__id *name_owner_out)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__placement_group_name_key(group, key));

    *name_owner_out = (struct tdm__id){{0}};
    return record == NULL ? TDM_OK : record_decode(record, read_name_owner, name_owner_out);
}

tdm_status tdm__placement_group_name_claim(struct tdm__txn *txn,
                                           const struct tdm__placement_group_record *group)
{
    char key[TDM__STORE_KEY_BYTES];
    struct tdm__id name_owner;

    if (group->name[0] == '\0') {
        return TDM_OK;
    }
    TDM_TRY(find_name_owner(txn, group, &name_owner));
    if (tdm__id_is_none(&name_owner)) {
        return record_put(txn, tdm__placement_group_name_key(group, key), 0, write_name_owner,
                          &group->id);
    }
    return tdm__id_equal(&name_owner, &group->id)
               ? tdm__txn_require_confirmed(txn, tdm__placement_group_name_key(group, key))
               : tdm__fail(TDM_E_EXISTS, "another placement group has the name \"%s\"",
                           group->name);
}

tdm_status tdm__placement_group_name_release(struct tdm__txn *txn,
                                             const struct tdm__placement_group_record *group)
{
    char key[TDM__STORE_KEY_BYTES];
    struct tdm__id name_owner;

    if (group->name[0] == '\0') {
        return TDM_OK;
    }
    TDM_TRY(find_name_owner(txn, group, &name_owner));
    return tdm__id_equal(&name_owner, &group->id)
               ? tdm__txn_delete(txn, tdm__placement_group_name_key(group, key))
               : TDM_OK;
}
