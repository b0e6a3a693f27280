/* meet_service.c - the daemon's service "meet": where the members of a group find each other.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/meet_service.h"

#include "actors/node/node.h"
#include "colocate/comm/host/segment.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

enum {
    NAME_BYTES = 128,
    MEETINGS_MAX = 1024,
    ADDRESS_BYTES = 128,
    GRACE_MS = 1000,
    GONE_MS = 10000,
    OFF_MAX = 16
};

struct member {
    struct tdm__id peer;            /* none: has not come, or is gone */
    struct tdm__incoming *incoming; /* to be answered; NULL once it is */
    struct tdm__id node;            /* both: of a meeting across nodes */
    char address[ADDRESS_BYTES];
};

/* First a meeting that waits for its members, then (segment set) a group in being, kept for as
 * long as a member lives so that its death can be told. */
struct meeting {
    struct meeting *next;
    struct service *service; /* borrowed */
    char name[NAME_BYTES];
    bool across; /* members are on any node; what becomes of them is not known here */
    struct tdm__segment_options options;
    int64_t deadline_ms;          /* of whoever came with the least time */
    struct tdm__segment *segment; /* owned; the header only */
    struct member members[TDM__RANKS_MAX];
};

/* A member of this node that waits in a meeting on another one.  Freed by the answer. */
struct passed {
    LIST_ENTRY(passed) link;
    struct service *service; /* NULL: ended, and this is in no list */
    struct tdm__incoming *incoming;
    struct tdm__id peer;
    struct tdm__id where;
};

struct service {
    struct tdm__node *node;   /* borrowed */
    struct tdm__timer *timer; /* owned: the next deadline of a meeting */
    LIST_HEAD(, passed) passed;
    struct meeting *meetings;
    uint32_t meetings_count;
    uint64_t generation;
    char off[OFF_MAX][NAME_BYTES]; /* called off lately, round and round; "": none */
    uint32_t off_next;
};

struct joining {
    const char *name;
    uint32_t rank;
    struct tdm__segment_options options;
    int64_t deadline_ms;
    bool across;
    bool is_far; /* asks through its node's daemon */
    struct tdm__id peer;
    struct tdm__id node;
    const char *address;
};

/* ---- meetings --------------------------------------------------------------------------- */

static bool is_deserted(const struct meeting *meeting)
{
    for (uint32_t i = 0; i < meeting->options.ranks_count; i++) {
        if (!tdm__id_is_none(&meeting->members[i].peer)) {
            return false;
        }
    }
    return true;
}

static void remove_meeting(struct service *service, struct meeting *meeting)
{
    struct meeting **link = &service->meetings;

    while (*link != meeting) {
        link = &(*link)->next;
    }
    *link = meeting->next;
    service->meetings_count--;
    tdm__segment_unmap(meeting->segment);
    free(meeting);
}

static void set_timer(struct service *service)
{
    int64_t next_ms = TDM__NEVER;

    for (const struct meeting *meeting = service->meetings; meeting != NULL;
         meeting = meeting->next) {
        if (meeting->segment == NULL && meeting->deadline_ms < next_ms) {
            next_ms = meeting->deadline_ms;
        }
    }
    if (next_ms == TDM__NEVER) {
        tdm__timer_clear(service->timer);
    } else {
        (void)tdm__timer_set(service->timer, next_ms);
    }
}

/* Tells all who came that it came to nothing, and forgets the meeting. */
static void dissolve(struct service *service, struct meeting *meeting, tdm_status status,
                     const char *detail)
{
    for (uint32_t i = 0; i < meeting->options.ranks_count; i++) {
        if (meeting->members[i].incoming != NULL) {
            tdm__incoming_fail(meeting->members[i].incoming, status, detail);
        }
    }
    remove_meeting(service, meeting);
}

static void dissolve_late(struct service *service, struct meeting *meeting)
{
    char detail[512];
    size_t used = (size_t)snprintf(detail, sizeof(detail),
                                   "group %s: did not come in time:", meeting->name);

    for (uint32_t i = 0; i < meeting->options.ranks_count && used < sizeof(detail); i++) {
        if (meeting->members[i].incoming == NULL) {
            used += (size_t)snprintf(detail + used, sizeof(detail) - used, " rank %u", i);
        }
    }
    dissolve(service, meeting, TDM_E_TIMEOUT, detail);
}

static void on_deadline(void *arg)
{
    struct service *service = arg;
    int64_t now_ms = tdm__clock_ms();
    struct meeting *next;

    for (struct meeting *meeting = service->meetings; meeting != NULL; meeting = next) {
        next = meeting->next;
        if (meeting->segment == NULL && meeting->deadline_ms <= now_ms) {
            dissolve_late(service, meeting);
        }
    }
    set_timer(service);
}

static struct meeting *find_waiting(const struct service *service, const char *name,
                                    bool across)
{
    for (struct meeting *meeting = service->meetings; meeting != NULL;
         meeting = meeting->next) {
        if (meeting->segment == NULL && meeting->across == across &&
            strcmp(meeting->name, name) == 0) {
            return meeting;
        }
    }
    return NULL;
}

/* ---- joining ---------------------------------------------------------------------------- */

static tdm_status check_shape(struct joining *joining, uint64_t rank, uint64_t ranks_count)
{
    if (joining->name == NULL || joining->name[0] == '\0' ||
        strlen(joining->name) >= NAME_BYTES) {
        return tdm__fail(TDM_E_INVAL, "a group's name has 1 to %d bytes", NAME_BYTES - 1);
    }
    if (ranks_count == 0 || ranks_count > TDM__RANKS_MAX || rank >= ranks_count) {
        return tdm__fail(TDM_E_INVAL, "rank %llu of %llu: a group has 1 to %d ranks",
                         (unsigned long long)rank, (unsigned long long)ranks_count,
                         TDM__RANKS_MAX);
    }
    joining->rank = (uint32_t)rank;
    joining->options.ranks_count = (uint32_t)ranks_count;
    return TDM_OK;
}

static tdm_status read_joining(struct tdm__incoming *incoming, struct joining *joining_out)
{
    struct joining joining = {.peer = tdm__incoming_peer(incoming)->id};
    struct tdm__meet_join_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__meet_join_table(), &message));
    joining.name = message.name;
    joining.options.slot_bytes = (size_t)message.slot_bytes;
    joining.deadline_ms = tdm__deadline_in(message.timeout_ms);
    TDM_TRY(check_shape(&joining, message.rank, message.ranks_count));
    *joining_out = joining;
    return TDM_OK;
}

/* Groups that all members have left while they live on. */
static void sweep(struct service *service)
{
    struct meeting *next;

    for (struct meeting *meeting = service->meetings; meeting != NULL; meeting = next) {
        next = meeting->next;
        if (meeting->segment != NULL && tdm__segment_is_deserted(meeting->segment)) {
            remove_meeting(service, meeting);
        }
    }
}

static tdm_status start_meeting(struct service *service, const struct joining *joining,
                                struct meeting **meeting_out)
{
    struct meeting *meeting;

    sweep(service);
    if (service->meetings_count >= MEETINGS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%d groups and meetings on this node", MEETINGS_MAX);
    }
    meeting = calloc(1, sizeof(*meeting));
    if (meeting == NULL) {
        return tdm__fail(TDM_E_NOMEM, "meeting %s", joining->name);
    }
    (void)snprintf(meeting->name, sizeof(meeting->name), "%s", joining->name);
    meeting->service = service;
    meeting->across = joining->across;
    meeting->options = joining->options;
    meeting->deadline_ms = TDM__NEVER;
    meeting->next = service->meetings;
    service->meetings = meeting;
    service->meetings_count++;
    *meeting_out = meeting;
    return TDM_OK;
}

static tdm_status check_joining(const struct meeting *meeting, const struct joining *joining)
{
    const struct member *member;

    if (meeting->options.ranks_count != joining->options.ranks_count ||
        meeting->options.slot_bytes != joining->options.slot_bytes) {
        return tdm__fail(TDM_E_INVAL,
                         "rank %u joins group %s with %u ranks and slots of %zu bytes, the "
                         "others with %u ranks and %zu bytes",
                         joining->rank, joining->name, joining->options.ranks_count,
                         joining->options.slot_bytes, meeting->options.ranks_count,
                         meeting->options.slot_bytes);
    }
    member = &meeting->members[joining->rank];
    if (member->incoming != NULL && !tdm__id_equal(&member->peer, &joining->peer)) {
        return tdm__fail(TDM_E_EXISTS, "group %s has a rank %u already: %s", joining->name,
                         joining->rank, tdm__incoming_peer(member->incoming)->name);
    }
    return TDM_OK;
}

static bool is_complete(const struct meeting *meeting)
{
    for (uint32_t i = 0; i < meeting->options.ranks_count; i++) {
        if (meeting->members[i].incoming == NULL) {
            return false;
        }
    }
    return true;
}

static void answer_all(struct meeting *meeting, tdm_writer *writer, const int *fd)
{
    for (uint32_t i = 0; i < meeting->options.ranks_count; i++) {
        tdm__incoming_reply(meeting->members[i].incoming, tdm_writer_bytes(writer), fd,
                            fd == NULL ? 0 : 1);
        meeting->members[i].incoming = NULL;
    }
}

static void get_member(const void *arg, uint32_t index, void *item_out)
{
    const struct member *member = &((const struct meeting *)arg)->members[index];
    struct tdm__meet_member_message *item = item_out;

    *item = (struct tdm__meet_member_message){member->node, member->address};
}

static tdm_status introduce(const struct meeting *meeting, tdm_writer *writer)
{
    struct tdm__meet_members_message message = {
        .members = {.count = meeting->options.ranks_count, .get = get_member, .arg = meeting}};

    TDM_TRY(tdm__id_make(&message.key));
    return tdm__meet_members_encode(&message, writer);
}

/* Members hear of one another, and look after their group themselves. */
static void form_across(struct service *service, struct meeting *meeting)
{
    tdm_writer *writer = NULL;
    tdm_status status = tdm_writer_create(&writer);

    if (status == TDM_OK) {
        status = introduce(meeting, writer);
    }
    if (status != TDM_OK) {
        dissolve(service, meeting, status, tdm_error_detail());
    } else {
        answer_all(meeting, writer, NULL);
        remove_meeting(service, meeting);
    }
    tdm_writer_destroy(writer);
}

static void form_group(struct service *service, struct meeting *meeting)
{
    tdm_writer *writer = NULL;
    tdm_status status;
    int fd = -1;

    status = tdm__segment_make(&meeting->options, &fd);
    if (status == TDM_OK) {
        status = tdm__segment_map(fd, true, &meeting->segment);
    }
    if (status == TDM_OK) {
        status = tdm_writer_create(&writer);
    }
    if (status == TDM_OK) {
        const struct tdm__meet_joined_message message = {++service->generation};

        status = tdm__meet_joined_encode(&message, writer);
    }
    if (status != TDM_OK) {
        dissolve(service, meeting, status, tdm_error_detail());
    } else {
        answer_all(meeting, writer, &fd);
    }
    tdm_writer_destroy(writer);
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* Whether this member's question came over a connection that has ended since. */
static bool is_cut_off(const struct member *member)
{
    return member->incoming != NULL && tdm__incoming_conn(member->incoming) == NULL;
}

/* The node of a far member is lost, or its connection, over which it would be told of the
 * others: that cannot become a group any more. */
static void on_notice(void *arg, enum tdm__notice notice, uint64_t items_taken)
{
    struct meeting *meeting = arg;
    struct service *service = meeting->service;
    const char *daemon = "a daemon";
    char ranks[256] = "";
    char detail[512];
    size_t used = 0;

    (void)items_taken;
    if (notice != TDM__NOTICE_CLOSED) {
        return;
    }
    for (uint32_t i = 0; i < meeting->options.ranks_count && used < sizeof(ranks); i++) {
        const struct member *member = &meeting->members[i];

        if (is_cut_off(member) && !tdm__id_equal(&member->node, &service->node->record.id)) {
            daemon = tdm__incoming_peer(member->incoming)->name;
            used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, " rank %u", i);
        }
    }
    (void)snprintf(detail, sizeof(detail), "group %s: %s is lost, and with it%s", meeting->name,
                   daemon, ranks);
    dissolve(service, meeting, TDM_E_NODE_LOST, detail);
    set_timer(service);
}

/* A name stands for itself and for all that are below it. */
static bool stands_for(const char *off, const char *name)
{
    size_t length = strlen(off);

    return length > 0 && strncmp(off, name, length) == 0 &&
           (name[length] == '\0' || name[length] == '/');
}

static tdm_status check_not_off(const struct service *service, const char *name)
{
    for (uint32_t i = 0; i < OFF_MAX; i++) {
        if (stands_for(service->off[i], name)) {
            return tdm__fail(TDM_E_ABORTED, "group %s was called off", name);
        }
    }
    return TDM_OK;
}

/* Keeps `incoming` on TDM_OK, to be answered with the others. */
static tdm_status join(struct service *service, struct tdm__incoming *incoming,
                       const struct joining *joining)
{
    struct meeting *meeting = find_waiting(service, joining->name, joining->across);
    struct member *member;

    TDM_TRY(check_not_off(service, joining->name));
    if (meeting == NULL) {
        TDM_TRY(start_meeting(service, joining, &meeting));
    }
    TDM_TRY(check_joining(meeting, joining));
    member = &meeting->members[joining->rank];
    if (member->incoming != NULL) {
        tdm__incoming_fail(member->incoming, TDM_E_CANCELED, "the same rank joined once more");
    }
    member->peer = joining->peer;
    member->incoming = incoming;
    member->node = joining->node;
    if (joining->is_far) {
        tdm__incoming_on_notice(incoming, on_notice, meeting);
    }
    (void)snprintf(member->address, sizeof(member->address), "%s",
                   joining->address == NULL ? "" : joining->address);
    if (joining->deadline_ms < meeting->deadline_ms) {
        meeting->deadline_ms = joining->deadline_ms;
    }
    if (is_complete(meeting)) {
        if (meeting->across) {
            form_across(service, meeting);
        } else {
            form_group(service, meeting);
        }
    }
    set_timer(service);
    return TDM_OK;
}

static tdm_status serve_join(struct service *service, struct tdm__incoming *incoming)
{
    struct joining joining;

    TDM_TRY(read_joining(incoming, &joining));
    return join(service, incoming, &joining);
}

/* ---- across nodes ----------------------------------------------------------------------- */

/* What both methods have in common, and an id: of the node to meet on, or of the member. */
static tdm_status read_across(struct tdm__incoming *incoming, struct joining *joining,
                              int64_t *timeout_ms_out, struct tdm__id *id_out)
{
    struct tdm__meet_across_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__meet_across_table(), &message));
    if (message.address != NULL && strlen(message.address) >= ADDRESS_BYTES) {
        return tdm__fail(TDM_E_PROTOCOL, "an address of %zu bytes, at most %d",
                         strlen(message.address), ADDRESS_BYTES - 1);
    }
    joining->name = message.name;
    joining->address = message.address;
    joining->across = true;
    joining->options.slot_bytes = (size_t)message.slot_bytes;
    joining->deadline_ms = tdm__deadline_in(message.timeout_ms);
    *id_out = message.id;
    *timeout_ms_out = message.timeout_ms;
    return check_shape(joining, message.rank, message.ranks_count);
}

static void on_answered_there(void *arg, struct tdm__reply *reply)
{
    struct passed *passed = arg;

    if (reply->status == TDM_OK) {
        tdm__incoming_reply(passed->incoming, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(passed->incoming, reply->status, reply->detail);
    }
    if (passed->service != NULL) {
        LIST_REMOVE(passed, link);
    }
    free(passed);
}

static void note_passed(struct service *service, struct tdm__incoming *incoming,
                        const struct tdm__id *where, struct passed *passed)
{
    *passed = (struct passed){.service = service,
                              .incoming = incoming,
                              .peer = tdm__incoming_peer(incoming)->id,
                              .where = *where};
    LIST_INSERT_HEAD(&service->passed, passed, link);
}

static tdm_status pass_on(struct service *service, struct tdm__incoming *incoming,
                          const struct joining *joining, const struct tdm__id *where,
                          int64_t timeout_ms)
{
    const struct tdm__meet_across_message message = {.name = joining->name,
                                                     .rank = joining->rank,
                                                     .ranks_count =
                                                         joining->options.ranks_count,
                                                     .slot_bytes = joining->options.slot_bytes,
                                                     .timeout_ms = timeout_ms,
                                                     .address = joining->address,
                                                     .id = joining->peer};
    struct passed *passed = malloc(sizeof(*passed));
    tdm_writer *writer = NULL;
    tdm_status status = passed == NULL
                            ? tdm__fail(TDM_E_NOMEM, "a member of a meeting elsewhere")
                            : tdm_writer_create(&writer);

    if (status == TDM_OK) {
        status = tdm__meet_across_encode(&message, writer);
    }
    if (status == TDM_OK) {
        note_passed(service, incoming, where, passed);
        tdm__node_forward(service->node, where, "meet.far", tdm_writer_bytes(writer),
                          tdm__deadline_in(tdm__timeout_longer(timeout_ms, GRACE_MS)),
                          on_answered_there, passed);
    } else {
        free(passed);
    }
    tdm_writer_destroy(writer);
    return status;
}

static void on_gone_told(void *arg, struct tdm__reply *reply)
{
    (void)arg;
    (void)reply;
}

/* Where a member waited that is gone: else others would be told to connect with it. */
static void tell_gone(struct service *service, const struct tdm__id *peer)
{
    struct passed *passed;

    LIST_FOREACH(passed, &service->passed, link)
    {
        if (tdm__id_equal(&passed->peer, peer)) {
            tdm__node_ask_about(service->node, &passed->where, "meet.gone", peer,
                                tdm__deadline_in(GONE_MS), on_gone_told, NULL);
        }
    }
}

/* Of a process of this node, which says where to meet. */
static tdm_status serve_across(struct service *service, struct tdm__incoming *incoming)
{
    const struct tdm__id *here = &service->node->record.id;
    struct joining joining = {.peer = tdm__incoming_peer(incoming)->id, .node = *here};
    struct tdm__id where;
    int64_t timeout_ms;

    TDM_TRY(read_across(incoming, &joining, &timeout_ms, &where));
    return tdm__id_equal(&where, here)
               ? join(service, incoming, &joining)
               : pass_on(service, incoming, &joining, &where, timeout_ms);
}

/* Of a process of another node, whose daemon says which. */
static tdm_status serve_far(struct service *service, struct tdm__incoming *incoming)
{
    const struct tdm__identity *daemon = tdm__incoming_peer(incoming);
    struct joining joining = {.node = daemon->id};
    struct tdm__id member;
    int64_t timeout_ms;

    if (daemon->kind != TDM__PEER_DAEMON) {
        return tdm__fail(TDM_E_PROTOCOL, "meet.far is between daemons");
    }
    TDM_TRY(read_across(incoming, &joining, &timeout_ms, &member));
    joining.peer = member;
    joining.is_far = true;
    return join(service, incoming, &joining);
}

/* ---- who is gone ------------------------------------------------------------------------ */

static void lose_member(struct meeting *meeting, uint32_t rank)
{
    struct member *member = &meeting->members[rank];

    memset(&member->peer, 0, sizeof(member->peer));
    if (member->incoming != NULL) {
        tdm__incoming_fail(member->incoming, TDM_E_ACTOR_DIED, "the caller is gone");
        member->incoming = NULL;
    }
    if (meeting->segment != NULL) {
        tdm__segment_abort(meeting->segment, rank, TDM__RANK_DIED);
    }
}

/* `from`: only of meetings that it came to from that node; NULL: of all. */
static void lose_peer(struct service *service, const struct tdm__id *peer,
                      const struct tdm__id *from)
{
    struct meeting *next;

    for (struct meeting *meeting = service->meetings; meeting != NULL; meeting = next) {
        next = meeting->next;
        for (uint32_t i = 0; i < meeting->options.ranks_count; i++) {
            const struct member *member = &meeting->members[i];

            if (tdm__id_equal(&member->peer, peer) &&
                (from == NULL || tdm__id_equal(&member->node, from))) {
                lose_member(meeting, i);
            }
        }
        if (is_deserted(meeting)) {
            remove_meeting(service, meeting);
        }
    }
    set_timer(service);
}

static void peer_gone(void *self, const struct tdm__identity *peer)
{
    tell_gone(self, &peer->id);
    lose_peer(self, &peer->id, NULL);
}

/* A process of another node, whose daemon says so. */
static tdm_status serve_gone(struct service *service, struct tdm__incoming *incoming)
{
    const struct tdm__identity *daemon = tdm__incoming_peer(incoming);
    struct tdm__id_request_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__id_request_table(), &message));
    if (daemon->kind != TDM__PEER_DAEMON) {
        return tdm__fail(TDM_E_PROTOCOL, "meet.gone is between daemons");
    }
    lose_peer(service, &message.id, &daemon->id);
    tdm__incoming_reply_pack(incoming, "");
    return TDM_OK;
}

/* ---- called off ------------------------------------------------------------------------- */

/* Who comes later must hear of it, too. */
static void call_off(struct service *service, const char *name)
{
    struct meeting *next;
    char detail[NAME_BYTES + 32];

    (void)snprintf(service->off[service->off_next], NAME_BYTES, "%s", name);
    service->off_next = (service->off_next + 1) % OFF_MAX;
    for (struct meeting *meeting = service->meetings; meeting != NULL; meeting = next) {
        next = meeting->next;
        if (meeting->segment == NULL && stands_for(name, meeting->name)) {
            (void)snprintf(detail, sizeof(detail), "group %s was called off", meeting->name);
            dissolve(service, meeting, TDM_E_ABORTED, detail);
        }
    }
    set_timer(service);
}

static void on_called_off_there(void *arg, struct tdm__reply *reply)
{
    struct tdm__incoming *incoming = arg;

    if (reply->status == TDM_OK) {
        tdm__incoming_reply(incoming, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(incoming, reply->status, reply->detail);
    }
}

/* Of a process of this node, or from its daemon. */
static tdm_status serve_off(struct service *service, struct tdm__incoming *incoming)
{
    struct tdm__meet_off_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__meet_off_table(), &message));
    if (message.name == NULL || message.name[0] == '\0' || strlen(message.name) >= NAME_BYTES) {
        return tdm__fail(TDM_E_INVAL, "a name of 1 to %d bytes, and a node's id",
                         NAME_BYTES - 1);
    }
    if (tdm__id_equal(&message.node, &service->node->record.id)) {
        call_off(service, message.name);
        tdm__incoming_reply_pack(incoming, "");
    } else if (tdm__incoming_peer(incoming)->kind == TDM__PEER_DAEMON) {
        return tdm__fail(TDM_E_PROTOCOL, "meet.off of another node, from a daemon");
    } else {
        tdm__node_forward(service->node, &message.node, "meet.off",
                          tdm__incoming_packed(incoming), tdm__deadline_in(GONE_MS),
                          on_called_off_there, incoming);
    }
    return TDM_OK;
}

/* ---- the service ------------------------------------------------------------------------ */

static void serve(void *self, struct tdm__incoming *incoming)
{
    static const struct {
        const char *method;
        tdm_status (*fn)(struct service *service, struct tdm__incoming *incoming);
    } methods[] = {{"meet.join", serve_join},
                   {"meet.across", serve_across},
                   {"meet.far", serve_far},
                   {"meet.gone", serve_gone},
                   {"meet.off", serve_off}};
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

static void destroy(void *self)
{
    struct service *service = self;

    while (!LIST_EMPTY(&service->passed)) {
        struct passed *passed = LIST_FIRST(&service->passed);

        LIST_REMOVE(passed, link);
        passed->service = NULL;
    }
    while (service->meetings != NULL) {
        dissolve(service, service->meetings, TDM_E_CLOSED, "the daemon stops");
    }
    tdm__timer_destroy(service->timer);
    free(service);
}

const struct tdm__service_ops tdm__meet_service = {
    .prefix = "meet", .serve = serve, .peer_gone = peer_gone, .destroy = destroy};

tdm_status tdm__meet_create(struct tdm__node *node, void **self_out)
{
    struct service *service = calloc(1, sizeof(*service));
    tdm_status status;

    if (service == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the meeting place");
    }
    service->node = node;
    LIST_INIT(&service->passed);
    status = tdm__timer_create(node->loop, on_deadline, service, &service->timer);
    if (status != TDM_OK) {
        free(service);
        return status;
    }
    *self_out = service;
    return TDM_OK;
}
