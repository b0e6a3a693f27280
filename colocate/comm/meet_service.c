/* meet_service.c - the daemon's service "meet": where the members of a group find each other.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/meet_service.h"

#include "colocate/comm/host/segment.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 128, MEETINGS_MAX = 1024 };

struct member {
    struct tdm__id peer;            /* none: has not come, or is gone */
    struct tdm__incoming *incoming; /* to be answered; NULL once it is */
};

/* First a meeting that waits for its members, then (segment set) a group in being, kept for as
 * long as a member lives so that its death can be told. */
struct meeting {
    struct meeting *next;
    char name[NAME_BYTES];
    struct tdm__segment_options options;
    int64_t deadline_ms;          /* of whoever came with the least time */
    struct tdm__segment *segment; /* owned; the header only */
    struct member members[TDM__RANKS_MAX];
};

struct service {
    struct tdm__timer *timer; /* owned: the next deadline of a meeting */
    struct meeting *meetings;
    uint32_t meetings_count;
    uint64_t generation;
};

struct joining {
    const char *name;
    uint32_t rank;
    struct tdm__segment_options options;
    int64_t deadline_ms;
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

static struct meeting *find_waiting(const struct service *service, const char *name)
{
    for (struct meeting *meeting = service->meetings; meeting != NULL;
         meeting = meeting->next) {
        if (meeting->segment == NULL && strcmp(meeting->name, name) == 0) {
            return meeting;
        }
    }
    return NULL;
}

/* ---- joining ---------------------------------------------------------------------------- */

static tdm_status read_joining(struct tdm__incoming *incoming, struct joining *joining_out)
{
    uint64_t rank;
    uint64_t ranks_count;
    uint64_t slot_bytes;
    int64_t timeout_ms;

    TDM_TRY(tdm__incoming_unpack(incoming, "suuui", &joining_out->name, &rank, &ranks_count,
                                 &slot_bytes, &timeout_ms));
    if (joining_out->name == NULL || joining_out->name[0] == '\0' ||
        strlen(joining_out->name) >= NAME_BYTES) {
        return tdm__fail(TDM_E_INVAL, "a group's name has 1 to %d bytes", NAME_BYTES - 1);
    }
    if (ranks_count == 0 || ranks_count > TDM__RANKS_MAX || rank >= ranks_count) {
        return tdm__fail(TDM_E_INVAL, "rank %llu of %llu: a group has 1 to %d ranks",
                         (unsigned long long)rank, (unsigned long long)ranks_count,
                         TDM__RANKS_MAX);
    }
    joining_out->rank = (uint32_t)rank;
    joining_out->options.ranks_count = (uint32_t)ranks_count;
    joining_out->options.slot_bytes = (size_t)slot_bytes;
    joining_out->deadline_ms = tdm__deadline_in(timeout_ms);
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
    meeting->options = joining->options;
    meeting->deadline_ms = TDM__NEVER;
    meeting->next = service->meetings;
    service->meetings = meeting;
    service->meetings_count++;
    *meeting_out = meeting;
    return TDM_OK;
}

static tdm_status check_joining(const struct meeting *meeting, const struct joining *joining,
                                const struct tdm__id *peer)
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
    if (member->incoming != NULL && !tdm__id_equal(&member->peer, peer)) {
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
        service->generation++;
        status = tdm_pack(writer, "u", service->generation);
    }
    if (status != TDM_OK) {
        dissolve(service, meeting, status, tdm_error_detail());
    } else {
        for (uint32_t i = 0; i < meeting->options.ranks_count; i++) {
            tdm__incoming_reply(meeting->members[i].incoming, tdm_writer_bytes(writer), &fd, 1);
            meeting->members[i].incoming = NULL;
        }
    }
    tdm_writer_destroy(writer);
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* Keeps `incoming` on TDM_OK, to be answered with the others. */
static tdm_status join(struct service *service, struct tdm__incoming *incoming)
{
    const struct tdm__id *peer = &tdm__incoming_peer(incoming)->id;
    struct meeting *meeting;
    struct member *member;
    struct joining joining;

    TDM_TRY(read_joining(incoming, &joining));
    meeting = find_waiting(service, joining.name);
    if (meeting == NULL) {
        TDM_TRY(start_meeting(service, &joining, &meeting));
    }
    TDM_TRY(check_joining(meeting, &joining, peer));
    member = &meeting->members[joining.rank];
    if (member->incoming != NULL) {
        tdm__incoming_fail(member->incoming, TDM_E_CANCELED, "the same rank joined once more");
    }
    member->peer = *peer;
    member->incoming = incoming;
    if (joining.deadline_ms < meeting->deadline_ms) {
        meeting->deadline_ms = joining.deadline_ms;
    }
    if (is_complete(meeting)) {
        form_group(service, meeting);
    }
    set_timer(service);
    return TDM_OK;
}

/* ---- the service ------------------------------------------------------------------------ */

static void serve(void *self, struct tdm__incoming *incoming)
{
    tdm_status status;

    if (strcmp(tdm__incoming_method(incoming), "meet.join") == 0) {
        status = join(self, incoming);
    } else {
        status =
            tdm__fail(TDM_E_NOT_FOUND, "there is no method %s", tdm__incoming_method(incoming));
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

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

static void peer_gone(void *self, const struct tdm__identity *peer)
{
    struct service *service = self;
    struct meeting *next;

    for (struct meeting *meeting = service->meetings; meeting != NULL; meeting = next) {
        next = meeting->next;
        for (uint32_t i = 0; i < meeting->options.ranks_count; i++) {
            if (tdm__id_equal(&meeting->members[i].peer, &peer->id)) {
                lose_member(meeting, i);
            }
        }
        if (is_deserted(meeting)) {
            remove_meeting(service, meeting);
        }
    }
    set_timer(service);
}

static void destroy(void *self)
{
    struct service *service = self;

    while (service->meetings != NULL) {
        dissolve(service, service->meetings, TDM_E_CLOSED, "the daemon stops");
    }
    tdm__timer_destroy(service->timer);
    free(service);
}

const struct tdm__service_ops tdm__meet_service = {
    .prefix = "meet", .serve = serve, .peer_gone = peer_gone, .destroy = destroy};

tdm_status tdm__meet_create(struct tdm__loop *loop, void **self_out)
{
    struct service *service = calloc(1, sizeof(*service));
    tdm_status status;

    if (service == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the meeting place");
    }
    status = tdm__timer_create(loop, on_deadline, service, &service->timer);
    if (status != TDM_OK) {
        free(service);
        return status;
    }
    *self_out = service;
    return TDM_OK;
}
