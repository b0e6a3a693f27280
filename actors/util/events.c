/* events.c - tdm_events: results and stream items that have come, with one descriptor to poll. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Each reference or stream that is added has a struct event, which belongs to the callback until
 * that runs, and then to the list. The set is freed when it was destroyed and no callback is left.
 * The descriptor is an eventfd, whose counter is 1 while the list is not empty. Callbacks run on
 * any thread, so a mutex guards the list. */
#include "runtime/error.h"
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <tandem/util.h>
#include <unistd.h>

/* A result or item that is awaited or has come. */
struct event {
    STAILQ_ENTRY(event) link; /* Entry in the list of what has come. */
    tdm_events *events;       /* The set, which the event holds until its callback has run. */
    uint64_t token;           /* The number that the user has chosen. */
};

/* The events of one user. */
struct tdm_events {
    pthread_mutex_t mutex; /* Guards all other members. */
    int fd;                /* The eventfd, owned; constant. */
    /* Number of holders: the user until tdm_events_destroy(), and callbacks that have not run. */
    uint32_t holders_count;
    bool is_destroyed;          /* True after tdm_events_destroy(). */
    STAILQ_HEAD(, event) ready; /* Events that have come and were not taken, in order, owned. */
};

tdm_status tdm_events_create(tdm_events **events_out)
{
    TDM__REQUIRE(events_out);
    *events_out = NULL;

    tdm_events *events = calloc(1, sizeof(*events));

    if (events == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a set of events");
    }
    events->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (events->fd < 0) {
        free(events);
        return tdm__fail_errno(errno, "eventfd: a set of events");
    }
    (void)pthread_mutex_init(&events->mutex, NULL);
    STAILQ_INIT(&events->ready);
    events->holders_count = 1;
    *events_out = events;
    return TDM_OK;
}

/* Unlocks the set, removes one holder, and frees the set after the last one. */
static void events_unlock_and_release(tdm_events *events)
{
    bool is_last = --events->holders_count == 0;

    (void)pthread_mutex_unlock(&events->mutex);
    if (is_last) {
        (void)pthread_mutex_destroy(&events->mutex);
        (void)close(events->fd);
        free(events);
    }
}

/* Removes the oldest event from the list and resets the descriptor after the last one. The caller
 * has the mutex and frees the event; NULL if absent. */
static struct event *events_pop(tdm_events *events)
{
    struct event *event = STAILQ_FIRST(&events->ready);
    eventfd_t ignored;

    if (event == NULL) {
        return NULL;
    }
    STAILQ_REMOVE_HEAD(&events->ready, link);
    if (STAILQ_EMPTY(&events->ready)) {
        (void)eventfd_read(events->fd, &ignored);
    }
    return event;
}

void tdm_events_destroy(tdm_events *events)
{
    struct event *event;

    if (events == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&events->mutex);
    events->is_destroyed = true;
    while ((event = events_pop(events)) != NULL) {
        free(event);
    }
    events_unlock_and_release(events);
}

int tdm_events_fd(const tdm_events *events)
{
    TDM__REQUIRE_OR(events, -1);

    return events->fd;
}

/* ---- adding ----------------------------------------------------------------------------- */

/* Creates an event that holds the set. */
static tdm_status event_create(tdm_events *events, uint64_t token, struct event **event_out)
{
    struct event *event = calloc(1, sizeof(*event));

    if (event == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an event");
    }
    event->events = events;
    event->token = token;
    (void)pthread_mutex_lock(&events->mutex);
    events->holders_count++;
    (void)pthread_mutex_unlock(&events->mutex);
    *event_out = event;
    return TDM_OK;
}

/* Moves an event that has come to the list, or frees it: if it has not come, or the set was
 * destroyed. */
static void event_finish(struct event *event, bool has_come)
{
    tdm_events *events = event->events;

    (void)pthread_mutex_lock(&events->mutex);
    if (!has_come || events->is_destroyed) {
        free(event);
    } else {
        if (STAILQ_EMPTY(&events->ready)) {
            (void)eventfd_write(events->fd, 1);
        }
        STAILQ_INSERT_TAIL(&events->ready, event, link);
    }
    events_unlock_and_release(events);
}

/* Called when a result is there. */
static void on_result(void *arg, tdm_ref *ref)
{
    (void)ref;
    event_finish(arg, true);
}

tdm_status tdm_events_add_ref(tdm_events *events, tdm_ref *ref, uint64_t token)
{
    TDM__REQUIRE(events);
    TDM__REQUIRE(ref);

    struct event *event;
    tdm_status status;

    TDM_TRY(event_create(events, token, &event));
    status = tdm_ref_on_done(ref, on_result, event);
    if (status != TDM_OK) {
        event_finish(event, false);
    }
    return status;
}

/* Called when the next item or the end of a stream is there, or with NULL when it is destroyed. */
static void on_item(void *arg, tdm_stream *stream)
{
    event_finish(arg, stream != NULL);
}

tdm_status tdm_events_add_stream(tdm_events *events, tdm_stream *stream, uint64_t token)
{
    TDM__REQUIRE(events);
    TDM__REQUIRE(stream);

    struct event *event;
    tdm_status status;

    TDM_TRY(event_create(events, token, &event));
    status = tdm_stream_on_item(stream, on_item, event);
    if (status != TDM_OK) {
        event_finish(event, false);
    }
    return status;
}

/* ---- taking ----------------------------------------------------------------------------- */

tdm_status tdm_events_next(tdm_events *events, uint64_t *token_out)
{
    TDM__REQUIRE(events);
    TDM__REQUIRE(token_out);

    struct event *event;

    (void)pthread_mutex_lock(&events->mutex);
    event = events_pop(events);
    (void)pthread_mutex_unlock(&events->mutex);
    if (event == NULL) {
        return tdm__fail(TDM_E_AGAIN, "nothing has come that was not taken");
    }
    *token_out = event->token;
    free(event);
    return TDM_OK;
}
