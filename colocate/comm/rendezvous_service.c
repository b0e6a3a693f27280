/* rendezvous_service.c - the daemon's RPC service "rendezvous": where the members of a group find
 * each other. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The service owns two kinds of struct rendezvous in one list: open ones, which wait for members
 * (segment is NULL), and complete groups of one node, kept to report the death of a member
 * (segment is set). A group across nodes is removed when it is complete, because its members
 * supervise each other over TCP.
 *
 * A member that names another node as its meeting point is forwarded to that node's daemon
 * (struct forwarded_join). Its death is reported there with rendezvous.member_died. Canceled
 * names stay in a ring of CANCELED_NAMES_MAX entries, so that members that join late learn of the
 * cancellation.
 *
 * One timer is set to the earliest deadline of the open rendezvous. All functions run on the
 * daemon's loop thread. The methods are specified in rendezvous_service.h. */

#include "colocate/comm/rendezvous_service.h"

#include "actors/daemon/peer_daemons.h"
#include "colocate/comm/host/segment.h"
#include "colocate/comm/rank_list.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

enum {
    RENDEZVOUS_NAME_BYTES = 128, /* Size of a group's name, with the NUL. */
    /* Most open rendezvous and complete groups of a node. */
    RENDEZVOUS_MAX = 1024,
    ADDRESS_BYTES = 128, /* Size of a member's address, with the NUL. */
    /* Milliseconds that a forwarded call waits beyond the member's timeout. */
    GRACE_MS = 1000,
    /* Milliseconds after which a forwarded death or cancellation fails. */
    REPORT_DEATH_TIMEOUT_MS = 10000,
    CANCELED_NAMES_MAX = 16 /* Number of canceled names that are remembered. */
};

/* One rank of a rendezvous or of a complete group. */
struct member {
    /* Process that has this rank; the zero id if none has joined or it has died. */
    struct tdm__id peer;
    /* Owned call that waits for the group; NULL if no call waits. */
    struct tdm__incoming_call *incoming;
    /* Node of the member; set in a rendezvous across nodes only. */
    struct tdm__id node;
    /* Address where the member listens; set in a rendezvous across nodes only, may be "". */
    char address[ADDRESS_BYTES];
};

/* An open rendezvous, or (segment set) a complete group of this node that is kept while members
 * live, so that a death can be reported. The service owns it. */
struct rendezvous {
    struct rendezvous *next;
    struct service *service;          /* Borrowed service that owns this. */
    char name[RENDEZVOUS_NAME_BYTES]; /* Name of the group. */
    /* True if members may be on any node; the daemon does not supervise such a group. */
    bool is_multi_node;
    /* Number of ranks and slot size, which must be equal for all members. */
    struct tdm__comm_segment_options options;
    /* Earliest deadline of the members, in milliseconds on CLOCK_MONOTONIC. */
    int64_t deadline_ms;
    /* Owned mapping of the header only; NULL while the rendezvous is open. */
    struct tdm__comm_segment *segment;
    /* Owned array of the members by rank, options.ranks_count elements. */
    struct member *members;
};

/* A member of this node whose rendezvous is at another node's daemon. The service lists it; the
 * callback of the reply frees it. */
struct forwarded_join {
    LIST_ENTRY(forwarded_join) link; /* Link in the service's list. */
    /* Borrowed service; NULL once the service has ended and this is in no list. */
    struct service *service;
    struct tdm__incoming_call *incoming; /* Owned call of the member. */
    struct tdm__id peer;                 /* Identity of the member. */
    struct tdm__id target_node;          /* Node whose daemon is the meeting point. */
};

/* The state of the service; the daemon owns it through `self`. */
struct service {
    struct tdm__node *node; /* Borrowed. */
    /* Owned timer for the earliest deadline of an open rendezvous. */
    struct tdm__timer *timer;
    LIST_HEAD(, forwarded_join) forwarded_join;
    /* Owned list of open rendezvous and complete groups. */
    struct rendezvous *rendezvous_list;
    uint32_t rendezvous_count; /* Number of entries in the list. */
    /* Number of the newest complete group of this node. */
    uint64_t generation;
    /* Ring of the names that were canceled last; "" for an unused entry. */
    char canceled_names[CANCELED_NAMES_MAX][RENDEZVOUS_NAME_BYTES];
    uint32_t next_canceled_name; /* Index of the ring's entry to overwrite next. */
};

/* The arguments of a join, from this node or another. The texts point into the call. */
struct join_request {
    const char *name;                         /* Name of the group. */
    uint32_t rank;                            /* Rank of the member. */
    struct tdm__comm_segment_options options; /* Number of ranks and slot size. */
    /* Milliseconds on CLOCK_MONOTONIC when the member stops waiting. */
    int64_t deadline_ms;
    bool is_multi_node; /* True for a group across nodes. */
    /* True if the daemon of another node forwarded the call. */
    bool is_from_other_node;
    struct tdm__id peer; /* Identity of the member. */
    /* Node of the member; set for a group across nodes only. */
    struct tdm__id node;
    /* Address where the member listens; NULL if it does not listen. */
    const char *address;
};

/* ---- the list of rendezvous -------------------------------------------------------------- */

/* Returns true if no rank has a live member. */
static bool has_no_members(const struct rendezvous *rendezvous)
{
    for (uint32_t i = 0; i < rendezvous->options.ranks_count; i++) {
        if (!tdm__id_is_none(&rendezvous->members[i].peer)) {
            return false;
        }
    }
    return true;
}

/* Unlinks and frees a rendezvous or group. */
static void remove_rendezvous(struct service *service, struct rendezvous *rendezvous)
{
    struct rendezvous **link = &service->rendezvous_list;

    while (*link != rendezvous) {
        link = &(*link)->next;
    }
    *link = rendezvous->next;
    service->rendezvous_count--;
    tdm__comm_segment_unmap(rendezvous->segment);
    free(rendezvous->members);
    free(rendezvous);
}

/* Sets the timer to the earliest deadline of the open rendezvous, or stops it. */
static void arm_deadline_timer(struct service *service)
{
    int64_t next_ms = TDM__NEVER;

    for (const struct rendezvous *rendezvous = service->rendezvous_list; rendezvous != NULL;
         rendezvous = rendezvous->next) {
        if (rendezvous->segment == NULL && rendezvous->deadline_ms < next_ms) {
            next_ms = rendezvous->deadline_ms;
        }
    }
    if (next_ms == TDM__NEVER) {
        tdm__timer_clear(service->timer);
    } else {
        (void)tdm__timer_set(service->timer, next_ms);
    }
}

/* Fails the calls of all members that have joined, and removes the rendezvous. */
static void fail_rendezvous(struct service *service, struct rendezvous *rendezvous,
                            tdm_status status, const char *detail)
{
    for (uint32_t i = 0; i < rendezvous->options.ranks_count; i++) {
        if (rendezvous->members[i].incoming != NULL) {
            tdm__incoming_fail(rendezvous->members[i].incoming, status, detail);
        }
    }
    remove_rendezvous(service, rendezvous);
}

/* Fails a rendezvous past its deadline with the list of missing ranks. */
static void fail_expired_rendezvous(struct service *service, struct rendezvous *rendezvous)
{
    struct tdm__rank_list missing = {.count = 0};
    char ranks[TDM__RANK_LIST_BYTES];
    char detail[RENDEZVOUS_NAME_BYTES + TDM__RANK_LIST_BYTES + 64];

    for (uint32_t i = 0; i < rendezvous->options.ranks_count; i++) {
        if (rendezvous->members[i].incoming == NULL) {
            tdm__rank_list_add(&missing, i);
        }
    }
    (void)snprintf(detail, sizeof(detail), "group %s: did not come in time: %s", rendezvous->name,
                   tdm__rank_list_text(&missing, ranks));
    fail_rendezvous(service, rendezvous, TDM_E_TIMEOUT, detail);
}

/* Fails all open rendezvous whose deadlines have passed. */
static void on_deadline(void *arg)
{
    struct service *service = arg;
    int64_t now_ms = tdm__clock_ms();
    struct rendezvous *next;

    for (struct rendezvous *rendezvous = service->rendezvous_list; rendezvous != NULL;
         rendezvous = next) {
        next = rendezvous->next;
        if (rendezvous->segment == NULL && rendezvous->deadline_ms <= now_ms) {
            fail_expired_rendezvous(service, rendezvous);
        }
    }
    arm_deadline_timer(service);
}

/* Returns the open rendezvous with this name and kind, or NULL if none exists. */
static struct rendezvous *find_open_rendezvous(const struct service *service, const char *name,
                                               bool is_multi_node)
{
    for (struct rendezvous *rendezvous = service->rendezvous_list; rendezvous != NULL;
         rendezvous = rendezvous->next) {
        if (rendezvous->segment == NULL && rendezvous->is_multi_node == is_multi_node &&
            strcmp(rendezvous->name, name) == 0) {
            return rendezvous;
        }
    }
    return NULL;
}

/* ---- joining ----------------------------------------------------------------------------- */

/* Checks the name, the rank and the number of ranks, and stores the numbers in the request. */
static tdm_status set_rank_and_count(struct join_request *join_request, uint64_t rank,
                                     uint64_t ranks_count)
{
    if (join_request->name == NULL || join_request->name[0] == '\0' ||
        strlen(join_request->name) >= RENDEZVOUS_NAME_BYTES) {
        return tdm__fail(TDM_E_INVAL, "a group's name has 1 to %d bytes",
                         RENDEZVOUS_NAME_BYTES - 1);
    }
    if (ranks_count == 0 || ranks_count > TDM_COLLECTIVE_RANKS_MAX || rank >= ranks_count) {
        return tdm__fail(TDM_E_INVAL,
                         "rank %llu of %llu: a group has 1 to %d ranks, "
                         "numbered from 0",
                         (unsigned long long)rank, (unsigned long long)ranks_count,
                         TDM_COLLECTIVE_RANKS_MAX);
    }
    join_request->rank = (uint32_t)rank;
    join_request->options.ranks_count = (uint32_t)ranks_count;
    return TDM_OK;
}

/* Decodes the arguments of rendezvous.join. */
static tdm_status read_join_request(struct tdm__incoming_call *incoming,
                                    struct join_request *join_request_out)
{
    struct join_request join_request = {.peer = tdm__incoming_peer(incoming)->id};
    struct tdm__rendezvous_join_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__rendezvous_join_table(), &message));
    join_request.name = message.name;
    join_request.options.slot_bytes = (size_t)message.slot_bytes;
    join_request.deadline_ms = tdm__deadline_after(message.timeout_ms);
    TDM_TRY(set_rank_and_count(&join_request, message.rank, message.ranks_count));
    *join_request_out = join_request;
    return TDM_OK;
}

/* Removes the complete groups that all members have left while their processes live on. */
static void remove_deserted(struct service *service)
{
    struct rendezvous *next;

    for (struct rendezvous *rendezvous = service->rendezvous_list; rendezvous != NULL;
         rendezvous = next) {
        next = rendezvous->next;
        if (rendezvous->segment != NULL && tdm__comm_segment_all_left(rendezvous->segment)) {
            remove_rendezvous(service, rendezvous);
        }
    }
}

/* Creates an open rendezvous for the first member. */
static tdm_status create_rendezvous(struct service *service,
                                    const struct join_request *join_request,
                                    struct rendezvous **rendezvous_out)
{
    struct rendezvous *rendezvous;

    remove_deserted(service);
    if (service->rendezvous_count >= RENDEZVOUS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%d groups and rendezvous on this node", RENDEZVOUS_MAX);
    }
    rendezvous = calloc(1, sizeof(*rendezvous));
    if (rendezvous != NULL) {
        rendezvous->members =
            calloc(join_request->options.ranks_count, sizeof(*rendezvous->members));
    }
    if (rendezvous == NULL || rendezvous->members == NULL) {
        free(rendezvous);
        return tdm__fail(TDM_E_NOMEM, "rendezvous %s", join_request->name);
    }
    (void)snprintf(rendezvous->name, sizeof(rendezvous->name), "%s", join_request->name);
    rendezvous->service = service;
    rendezvous->is_multi_node = join_request->is_multi_node;
    rendezvous->options = join_request->options;
    rendezvous->deadline_ms = TDM__NEVER;
    rendezvous->next = service->rendezvous_list;
    service->rendezvous_list = rendezvous;
    service->rendezvous_count++;
    *rendezvous_out = rendezvous;
    return TDM_OK;
}

/* Checks that the member's options equal those of the others and that its rank is free. A process
 * may join once more with its own rank. */
static tdm_status check_join_request(const struct rendezvous *rendezvous,
                                     const struct join_request *join_request)
{
    const struct member *member;

    if (rendezvous->options.ranks_count != join_request->options.ranks_count ||
        rendezvous->options.slot_bytes != join_request->options.slot_bytes) {
        return tdm__fail(TDM_E_INVAL,
                         "rank %u joins group %s with %u ranks and slots of %zu bytes, the "
                         "others with %u ranks and %zu bytes",
                         join_request->rank, join_request->name, join_request->options.ranks_count,
                         join_request->options.slot_bytes, rendezvous->options.ranks_count,
                         rendezvous->options.slot_bytes);
    }
    member = &rendezvous->members[join_request->rank];
    if (member->incoming != NULL && !tdm__id_equal(&member->peer, &join_request->peer)) {
        return tdm__fail(TDM_E_EXISTS, "group %s has a rank %u already: %s", join_request->name,
                         join_request->rank, tdm__incoming_peer(member->incoming)->name);
    }
    return TDM_OK;
}

/* Returns true if every rank has a waiting call. */
static bool all_members_came(const struct rendezvous *rendezvous)
{
    for (uint32_t i = 0; i < rendezvous->options.ranks_count; i++) {
        if (rendezvous->members[i].incoming == NULL) {
            return false;
        }
    }
    return true;
}

/* Sends the same reply, with `fd` unless it is NULL, to all members. */
static void reply_to_members(struct rendezvous *rendezvous, tdm_writer *writer, const int *fd)
{
    for (uint32_t i = 0; i < rendezvous->options.ranks_count; i++) {
        tdm__incoming_reply(rendezvous->members[i].incoming, tdm_writer_bytes(writer), fd,
                            fd == NULL ? 0 : 1);
        rendezvous->members[i].incoming = NULL;
    }
}

/* Returns the node and address of one member to the encoder of a list. */
static void get_member(const void *arg, uint32_t index, void *item_out)
{
    const struct member *member = &((const struct rendezvous *)arg)->members[index];
    struct tdm__rendezvous_member_message *item = item_out;

    *item = (struct tdm__rendezvous_member_message){member->node, member->address};
}

/* Encodes a new key and the addresses of all members. */
static tdm_status encode_member_addresses(const struct rendezvous *rendezvous, tdm_writer *writer)
{
    struct tdm__rendezvous_members_message message = {
        .members = {
            .count = rendezvous->options.ranks_count, .get = get_member, .arg = rendezvous}};

    TDM_TRY(tdm__id_generate(&message.key));
    return tdm__rendezvous_members_encode(&message, writer);
}

/* Replies to all members of a group across nodes and removes the rendezvous; the members
 * supervise each other. */
static void complete_multi_node_group(struct service *service, struct rendezvous *rendezvous)
{
    tdm_writer *writer = NULL;
    tdm_status status = tdm_writer_create(&writer);

    if (status == TDM_OK) {
        status = encode_member_addresses(rendezvous, writer);
    }
    if (status != TDM_OK) {
        fail_rendezvous(service, rendezvous, status, tdm_error_detail());
    } else {
        reply_to_members(rendezvous, writer, NULL);
        remove_rendezvous(service, rendezvous);
    }
    tdm_writer_destroy(writer);
}

/* Creates the shared segment of a group on this node and replies to all members. The header stays
 * mapped to report deaths. */
static void complete_group(struct service *service, struct rendezvous *rendezvous)
{
    tdm_writer *writer = NULL;
    tdm_status status;
    int fd = -1;

    status = tdm__comm_segment_create(&rendezvous->options, &fd);
    if (status == TDM_OK) {
        status = tdm__comm_segment_map(fd, true, &rendezvous->segment);
    }
    if (status == TDM_OK) {
        status = tdm_writer_create(&writer);
    }
    if (status == TDM_OK) {
        const struct tdm__rendezvous_joined_message message = {++service->generation};

        status = tdm__rendezvous_joined_encode(&message, writer);
    }
    if (status != TDM_OK) {
        fail_rendezvous(service, rendezvous, status, tdm_error_detail());
    } else {
        reply_to_members(rendezvous, writer, &fd);
    }
    tdm_writer_destroy(writer);
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* Returns true if the member's call came over a connection that has closed since. */
static bool member_connection_closed(const struct member *member)
{
    return member->incoming != NULL && tdm__incoming_conn(member->incoming) == NULL;
}

/* Fails a rendezvous when the connection of a forwarded member closes: its node, or the
 * connection over which it would get its reply, is lost. */
static void on_notice(void *arg, enum tdm__call_notice notice, uint64_t items_taken)
{
    struct rendezvous *rendezvous = arg;
    struct service *service = rendezvous->service;
    const char *daemon = "a daemon";
    struct tdm__rank_list lost = {.count = 0};
    char ranks[TDM__RANK_LIST_BYTES];
    char detail[RENDEZVOUS_NAME_BYTES + TDM__RANK_LIST_BYTES + 128];

    (void)items_taken;
    if (notice != TDM__NOTICE_CLOSED) {
        return;
    }
    for (uint32_t i = 0; i < rendezvous->options.ranks_count; i++) {
        const struct member *member = &rendezvous->members[i];

        if (member_connection_closed(member) &&
            !tdm__id_equal(&member->node, &service->node->record.id)) {
            daemon = tdm__incoming_peer(member->incoming)->name;
            tdm__rank_list_add(&lost, i);
        }
    }
    (void)snprintf(detail, sizeof(detail), "group %s: %s is lost, and with it %s", rendezvous->name,
                   daemon, tdm__rank_list_text(&lost, ranks));
    fail_rendezvous(service, rendezvous, TDM_E_NODE_LOST, detail);
    arm_deadline_timer(service);
}

/* Returns true if the canceled name `canceled` is `name` or a prefix of it up to a slash. */
static bool name_is_within(const char *canceled, const char *name)
{
    size_t length = strlen(canceled);

    return length > 0 && strncmp(canceled, name, length) == 0 &&
           (name[length] == '\0' || name[length] == '/');
}

/* Fails with TDM_E_ABORTED if the name was canceled. */
static tdm_status check_not_canceled(const struct service *service, const char *name)
{
    for (uint32_t i = 0; i < CANCELED_NAMES_MAX; i++) {
        if (name_is_within(service->canceled_names[i], name)) {
            return tdm__fail(TDM_E_ABORTED, "group %s was called off", name);
        }
    }
    return TDM_OK;
}

/* Adds the member to the open rendezvous of this name and completes the group if it is the last.
 * Keeps `incoming` on TDM_OK for the reply. */
static tdm_status join(struct service *service, struct tdm__incoming_call *incoming,
                       const struct join_request *join_request)
{
    struct rendezvous *rendezvous =
        find_open_rendezvous(service, join_request->name, join_request->is_multi_node);
    struct member *member;

    TDM_TRY(check_not_canceled(service, join_request->name));
    if (rendezvous == NULL) {
        TDM_TRY(create_rendezvous(service, join_request, &rendezvous));
    }
    TDM_TRY(check_join_request(rendezvous, join_request));
    member = &rendezvous->members[join_request->rank];
    if (member->incoming != NULL) {
        tdm__incoming_fail(member->incoming, TDM_E_CANCELED, "the same rank joined once more");
    }
    member->peer = join_request->peer;
    member->incoming = incoming;
    member->node = join_request->node;
    if (join_request->is_from_other_node) {
        tdm__incoming_on_notice(incoming, on_notice, rendezvous);
    }
    (void)snprintf(member->address, sizeof(member->address), "%s",
                   join_request->address == NULL ? "" : join_request->address);
    if (join_request->deadline_ms < rendezvous->deadline_ms) {
        rendezvous->deadline_ms = join_request->deadline_ms;
    }
    if (all_members_came(rendezvous)) {
        if (rendezvous->is_multi_node) {
            complete_multi_node_group(service, rendezvous);
        } else {
            complete_group(service, rendezvous);
        }
    }
    arm_deadline_timer(service);
    return TDM_OK;
}

/* Serves rendezvous.join. */
static tdm_status serve_join(struct service *service, struct tdm__incoming_call *incoming)
{
    struct join_request join_request;

    TDM_TRY(read_join_request(incoming, &join_request));
    return join(service, incoming, &join_request);
}

/* ---- groups across nodes ----------------------------------------------------------------- */

/* Decodes the common arguments of join_multi_node and join_from_node. `id_out` is the node of the
 * meeting point or the member. */
static tdm_status read_multi_node_join(struct tdm__incoming_call *incoming,
                                       struct join_request *join_request, int64_t *timeout_ms_out,
                                       struct tdm__id *id_out)
{
    struct tdm__rendezvous_across_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__rendezvous_across_table(), &message));
    if (message.address != NULL && strlen(message.address) >= ADDRESS_BYTES) {
        return tdm__fail(TDM_E_PROTOCOL, "an address of %zu bytes, at most %d",
                         strlen(message.address), ADDRESS_BYTES - 1);
    }
    join_request->name = message.name;
    join_request->address = message.address;
    join_request->is_multi_node = true;
    join_request->options.slot_bytes = (size_t)message.slot_bytes;
    join_request->deadline_ms = tdm__deadline_after(message.timeout_ms);
    *id_out = message.id;
    *timeout_ms_out = message.timeout_ms;
    return set_rank_and_count(join_request, message.rank, message.ranks_count);
}

/* Passes the reply of the other daemon to the member. */
static void on_forwarded_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct forwarded_join *forwarded_join = arg;

    tdm__incoming_pass_reply(forwarded_join->incoming, reply);
    if (forwarded_join->service != NULL) {
        LIST_REMOVE(forwarded_join, link);
    }
    free(forwarded_join);
}

/* Lists the member as forwarded to `target_node`. */
static void add_forwarded_join(struct service *service, struct tdm__incoming_call *incoming,
                               const struct tdm__id *target_node,
                               struct forwarded_join *forwarded_join)
{
    *forwarded_join = (struct forwarded_join){.service = service,
                                              .incoming = incoming,
                                              .peer = tdm__incoming_peer(incoming)->id,
                                              .target_node = *target_node};
    LIST_INSERT_HEAD(&service->forwarded_join, forwarded_join, link);
}

/* Forwards a member's call to the daemon of the node that is the meeting point. */
static tdm_status forward_join(struct service *service, struct tdm__incoming_call *incoming,
                               const struct join_request *join_request,
                               const struct tdm__id *target_node, int64_t timeout_ms)
{
    const struct tdm__rendezvous_across_message message = {
        .name = join_request->name,
        .rank = join_request->rank,
        .ranks_count = join_request->options.ranks_count,
        .slot_bytes = join_request->options.slot_bytes,
        .timeout_ms = timeout_ms,
        .address = join_request->address,
        .id = join_request->peer};
    struct forwarded_join *forwarded_join = malloc(sizeof(*forwarded_join));
    tdm_writer *writer = NULL;
    tdm_status status = forwarded_join == NULL
                            ? tdm__fail(TDM_E_NOMEM, "a member of a rendezvous elsewhere")
                            : tdm_writer_create(&writer);

    if (status == TDM_OK) {
        status = tdm__rendezvous_across_encode(&message, writer);
    }
    if (status == TDM_OK) {
        add_forwarded_join(service, incoming, target_node, forwarded_join);
        tdm__node_forward(service->node, target_node, "rendezvous.join_from_node",
                          tdm_writer_bytes(writer),
                          tdm__deadline_after(tdm__timeout_add(timeout_ms, GRACE_MS)),
                          on_forwarded_reply, forwarded_join);
    } else {
        free(forwarded_join);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Ignores the reply: the other daemon finds out in other ways if the report was lost. */
static void on_death_reported(void *arg, struct tdm__rpc_reply *reply)
{
    (void)arg;
    (void)reply;
}

/* Reports the death of a member to all daemons where it waits; otherwise other members would try
 * to connect to it. */
static void report_member_died(struct service *service, const struct tdm__id *peer)
{
    struct forwarded_join *forwarded_join;

    LIST_FOREACH(forwarded_join, &service->forwarded_join, link)
    {
        if (tdm__id_equal(&forwarded_join->peer, peer)) {
            tdm__node_send_id(service->node, &forwarded_join->target_node, "rendezvous.member_died",
                              peer, tdm__deadline_after(REPORT_DEATH_TIMEOUT_MS), on_death_reported,
                              NULL);
        }
    }
}

/* Serves rendezvous.join_multi_node of a process of this node. */
static tdm_status serve_multi_node_join(struct service *service,
                                        struct tdm__incoming_call *incoming)
{
    const struct tdm__id *here = &service->node->record.id;
    struct join_request join_request = {.peer = tdm__incoming_peer(incoming)->id, .node = *here};
    struct tdm__id target_node;
    int64_t timeout_ms;

    TDM_TRY(read_multi_node_join(incoming, &join_request, &timeout_ms, &target_node));
    return tdm__id_equal(&target_node, here)
               ? join(service, incoming, &join_request)
               : forward_join(service, incoming, &join_request, &target_node, timeout_ms);
}

/* Serves rendezvous.join_from_node, which another daemon forwards. */
static tdm_status serve_join_from_node(struct service *service, struct tdm__incoming_call *incoming)
{
    const struct tdm__peer_identity *daemon = tdm__incoming_peer(incoming);
    struct join_request join_request = {.node = daemon->id};
    struct tdm__id member;
    int64_t timeout_ms;

    if (daemon->kind != TDM__PEER_DAEMON) {
        return tdm__fail(TDM_E_PROTOCOL, "rendezvous.join_from_node is between daemons");
    }
    TDM_TRY(read_multi_node_join(incoming, &join_request, &timeout_ms, &member));
    join_request.peer = member;
    join_request.is_from_other_node = true;
    return join(service, incoming, &join_request);
}

/* ---- dead members ------------------------------------------------------------------------ */

/* Removes a dead member; ends its group for the others if the group is complete. */
static void remove_member(struct rendezvous *rendezvous, uint32_t rank)
{
    struct member *member = &rendezvous->members[rank];

    memset(&member->peer, 0, sizeof(member->peer));
    if (member->incoming != NULL) {
        tdm__incoming_fail(member->incoming, TDM_E_ACTOR_DIED, "the caller is gone");
        member->incoming = NULL;
    }
    if (rendezvous->segment != NULL) {
        tdm__comm_segment_abort(rendezvous->segment, rank, TDM__COMM_RANK_DIED);
    }
}

/* Removes a dead process from all rendezvous, or with `from` only where it joined from that node.
 */
static void remove_peer(struct service *service, const struct tdm__id *peer,
                        const struct tdm__id *from)
{
    struct rendezvous *next;

    for (struct rendezvous *rendezvous = service->rendezvous_list; rendezvous != NULL;
         rendezvous = next) {
        next = rendezvous->next;
        for (uint32_t i = 0; i < rendezvous->options.ranks_count; i++) {
            const struct member *member = &rendezvous->members[i];

            if (tdm__id_equal(&member->peer, peer) &&
                (from == NULL || tdm__id_equal(&member->node, from))) {
                remove_member(rendezvous, i);
            }
        }
        if (has_no_members(rendezvous)) {
            remove_rendezvous(service, rendezvous);
        }
    }
    arm_deadline_timer(service);
}

/* Handles the exit of a process of this node. */
static void peer_exited(void *self, const struct tdm__peer_identity *peer)
{
    report_member_died(self, &peer->id);
    remove_peer(self, &peer->id, NULL);
}

/* Serves rendezvous.member_died of another daemon. */
static tdm_status serve_member_died(struct service *service, struct tdm__incoming_call *incoming)
{
    const struct tdm__peer_identity *daemon = tdm__incoming_peer(incoming);
    struct tdm__id_request_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__id_request_table(), &message));
    if (daemon->kind != TDM__PEER_DAEMON) {
        return tdm__fail(TDM_E_PROTOCOL, "rendezvous.member_died is between daemons");
    }
    remove_peer(service, &message.id, &daemon->id);
    tdm__incoming_reply_pack(incoming, "");
    return TDM_OK;
}

/* ---- cancellation ------------------------------------------------------------------------ */

/* Cancels all open rendezvous with the name or below it, and remembers the name for members that
 * join later. */
static void cancel_rendezvous(struct service *service, const char *name)
{
    struct rendezvous *next;
    char detail[RENDEZVOUS_NAME_BYTES + 32];

    (void)snprintf(service->canceled_names[service->next_canceled_name], RENDEZVOUS_NAME_BYTES,
                   "%s", name);
    service->next_canceled_name = (service->next_canceled_name + 1) % CANCELED_NAMES_MAX;
    for (struct rendezvous *rendezvous = service->rendezvous_list; rendezvous != NULL;
         rendezvous = next) {
        next = rendezvous->next;
        if (rendezvous->segment == NULL && name_is_within(name, rendezvous->name)) {
            (void)snprintf(detail, sizeof(detail), "group %s was called off", rendezvous->name);
            fail_rendezvous(service, rendezvous, TDM_E_ABORTED, detail);
        }
    }
    arm_deadline_timer(service);
}

/* Serves rendezvous.cancel of a process of this node or of another daemon. */
static tdm_status serve_cancel(struct service *service, struct tdm__incoming_call *incoming)
{
    struct tdm__rendezvous_cancel_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__rendezvous_cancel_table(), &message));
    if (message.name == NULL || message.name[0] == '\0' ||
        strlen(message.name) >= RENDEZVOUS_NAME_BYTES) {
        return tdm__fail(TDM_E_INVAL, "a name of 1 to %d bytes, and a node's id",
                         RENDEZVOUS_NAME_BYTES - 1);
    }
    if (tdm__id_equal(&message.node, &service->node->record.id)) {
        cancel_rendezvous(service, message.name);
        tdm__incoming_reply_pack(incoming, "");
    } else if (tdm__incoming_peer(incoming)->kind == TDM__PEER_DAEMON) {
        return tdm__fail(TDM_E_PROTOCOL, "rendezvous.cancel of another node, from a daemon");
    } else {
        tdm__node_forward(
            service->node, &message.node, "rendezvous.cancel", tdm__incoming_packed(incoming),
            tdm__deadline_after(REPORT_DEATH_TIMEOUT_MS), tdm__incoming_pass_reply, incoming);
    }
    return TDM_OK;
}

/* ---- the service ------------------------------------------------------------------------ */

/* Dispatches a call to its method. Takes `incoming`. */
static void serve(void *self, struct tdm__incoming_call *incoming)
{
    static const struct {
        const char *method;
        tdm_status (*fn)(struct service *service, struct tdm__incoming_call *incoming);
    } methods[] = {{"rendezvous.join", serve_join},
                   {"rendezvous.join_multi_node", serve_multi_node_join},
                   {"rendezvous.join_from_node", serve_join_from_node},
                   {"rendezvous.member_died", serve_member_died},
                   {"rendezvous.cancel", serve_cancel}};
    tdm_status status =
        tdm__fail(TDM_E_NOT_FOUND, "there is no method %s", tdm__incoming_method(incoming));

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(tdm__incoming_method(incoming), methods[i].method) == 0) {
            status = methods[i].fn(self, incoming);
            break;
        }
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* Destroys the service and fails all waiting calls. Forwarded calls end with their replies. */
static void destroy(void *self)
{
    struct service *service = self;

    while (!LIST_EMPTY(&service->forwarded_join)) {
        struct forwarded_join *forwarded_join = LIST_FIRST(&service->forwarded_join);

        LIST_REMOVE(forwarded_join, link);
        forwarded_join->service = NULL;
    }
    while (service->rendezvous_list != NULL) {
        fail_rendezvous(service, service->rendezvous_list, TDM_E_CLOSED, "the daemon stops");
    }
    tdm__timer_destroy(service->timer);
    free(service);
}

const struct tdm__service_ops tdm__rendezvous_service = {
    .prefix = "rendezvous", .serve = serve, .peer_exited = peer_exited, .destroy = destroy};

tdm_status tdm__rendezvous_service_create(struct tdm__node *node, void **self_out)
{
    struct service *service = calloc(1, sizeof(*service));
    tdm_status status;

    if (service == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the rendezvous service");
    }
    service->node = node;
    LIST_INIT(&service->forwarded_join);
    status = tdm__timer_create(node->loop, on_deadline, service, &service->timer);
    if (status != TDM_OK) {
        free(service);
        return status;
    }
    *self_out = service;
    return TDM_OK;
}
