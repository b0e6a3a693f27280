/* board.c - an actor where a sender and its receivers leave notes for one another. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/board.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

/* ---- the actor -------------------------------------------------------------------------- */

struct note {
    TAILQ_ENTRY(note) link;
    char *key;    /* owned */
    tdm_ref *ref; /* owned: a put, so that what the value refers to stays */
    const tdm_value *value;
};

struct waiter {
    TAILQ_ENTRY(waiter) link;
    tdm_call *call; /* kept */
    char *prefix;   /* owned */
    char *after;    /* owned */
    uint64_t count;
};

struct closed {
    TAILQ_ENTRY(closed) link;
    char *prefix; /* owned */
    tdm_status status;
    char *text; /* owned */
};

TAILQ_HEAD(notes, note);
TAILQ_HEAD(waiters, waiter);
TAILQ_HEAD(closings, closed);

/* One thread: the class is asynchronous. */
struct board {
    struct notes notes;
    struct waiters waiters;
    struct closings closed; /* the newest first */
    uint32_t closed_count;
};

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static void note_remove(struct board *board, struct note *note)
{
    TAILQ_REMOVE(&board->notes, note, link);
    tdm_ref_release(note->ref);
    free(note->key);
    free(note);
}

static void waiter_remove(struct board *board, struct waiter *waiter)
{
    TAILQ_REMOVE(&board->waiters, waiter, link);
    free(waiter->prefix);
    free(waiter->after);
    free(waiter);
}

static void closed_remove(struct board *board, struct closed *closed)
{
    TAILQ_REMOVE(&board->closed, closed, link);
    board->closed_count--;
    free(closed->prefix);
    free(closed->text);
    free(closed);
}

/* ---- those who wait --------------------------------------------------------------------- */

static bool is_meant(const struct waiter *waiter, const struct note *note)
{
    return begins_with(note->key, waiter->prefix) && strcmp(note->key, waiter->after) > 0;
}

static uint32_t count_notes(const struct board *board, const struct waiter *waiter)
{
    const struct note *note;
    uint32_t count = 0;

    TAILQ_FOREACH(note, &board->notes, link)
    {
        count += is_meant(waiter, note) ? 1 : 0;
    }
    return count;
}

static tdm_status reply_notes(const struct board *board, const struct waiter *waiter)
{
    const struct note *note;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, count_notes(board, waiter));
    TAILQ_FOREACH(note, &board->notes, link)
    {
        if (is_meant(waiter, note)) {
            tdm_write_array(writer, 2);
            tdm_write_string(writer, note->key);
            tdm_write_value(writer, note->value);
        }
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(waiter->call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

static const struct closed *find_closed(const struct board *board, const char *prefix)
{
    const struct closed *closed;

    TAILQ_FOREACH(closed, &board->closed, link)
    {
        if (begins_with(prefix, closed->prefix)) {
            return closed;
        }
    }
    return NULL;
}

/* True if its wait is over, and it with it. */
static bool answer(struct board *board, struct waiter *waiter)
{
    const struct closed *closed = find_closed(board, waiter->prefix);

    if (closed != NULL) {
        tdm_call_fail(waiter->call, closed->status, "%s", closed->text);
    } else if (tdm_call_is_canceled(waiter->call) != 0) {
        tdm_call_fail(waiter->call, TDM_E_CANCELED, "nobody waits for %s", waiter->prefix);
    } else if (count_notes(board, waiter) < waiter->count) {
        return false;
    } else if (reply_notes(board, waiter) != TDM_OK) {
        tdm_call_fail(waiter->call, TDM_E_NOMEM, "%s", tdm_error_detail());
    }
    waiter_remove(board, waiter);
    return true;
}

static void answer_all(struct board *board)
{
    struct waiter *next;

    for (struct waiter *waiter = TAILQ_FIRST(&board->waiters); waiter != NULL; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        (void)answer(board, waiter);
    }
}

static tdm_status board_wait(tdm_call *call, void *self)
{
    struct board *board = self;
    struct waiter *waiter;
    const char *prefix;
    const char *after;
    uint64_t count;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "ssu", &prefix, &after, &count));
    waiter = calloc(1, sizeof(*waiter));
    if (waiter == NULL) {
        return tdm__fail(TDM_E_NOMEM, "one who waits for %s", prefix);
    }
    waiter->call = call;
    waiter->count = count;
    waiter->prefix = strdup(prefix);
    waiter->after = strdup(after);
    status = waiter->prefix == NULL || waiter->after == NULL
                 ? tdm__fail(TDM_E_NOMEM, "one who waits for notes")
                 : tdm_call_keep(call);
    TAILQ_INSERT_TAIL(&board->waiters, waiter, link);
    if (status != TDM_OK) {
        waiter_remove(board, waiter);
        return status;
    }
    answer_all(board); /* those who are gone leave, too */
    return TDM_OK;
}

/* ---- notes ------------------------------------------------------------------------------ */

static tdm_status note_create(const char *key, const tdm_value *value, struct note **note_out)
{
    struct note *note = calloc(1, sizeof(*note));
    tdm_status status;

    if (note == NULL || (note->key = strdup(key)) == NULL) {
        free(note);
        return tdm__fail(TDM_E_NOMEM, "a note %s", key);
    }
    status = tdm_put(tdm_runtime_current(), &note->ref, "v", value);
    if (status == TDM_OK) {
        status = tdm_get(note->ref, 0, "v", &note->value);
    }
    if (status != TDM_OK) {
        tdm_ref_release(note->ref);
        free(note->key);
        free(note);
        return status;
    }
    *note_out = note;
    return TDM_OK;
}

/* With `whole`, those whose key is exactly that. */
static void remove_notes(struct board *board, const char *prefix, bool whole)
{
    struct note *next;

    for (struct note *note = TAILQ_FIRST(&board->notes); note != NULL; note = next) {
        next = TAILQ_NEXT(note, link);
        if (begins_with(note->key, prefix) && (!whole || strcmp(note->key, prefix) == 0)) {
            note_remove(board, note);
        }
    }
}

static tdm_status board_put(tdm_call *call, void *self)
{
    struct board *board = self;
    const tdm_value *value;
    const char *key;
    struct note *note;

    TDM_TRY(tdm_call_unpack(call, "sv", &key, &value));
    TDM_TRY(note_create(key, value, &note));
    remove_notes(board, key, true);
    TAILQ_INSERT_TAIL(&board->notes, note, link);
    answer_all(board);
    return TDM_OK;
}

static tdm_status board_close(tdm_call *call, void *self)
{
    struct board *board = self;
    struct closed *closed;
    const char *prefix;
    const char *text;
    int64_t status;

    TDM_TRY(tdm_call_unpack(call, "sis", &prefix, &status, &text));
    remove_notes(board, prefix, false);
    if (status == TDM_OK) {
        return TDM_OK;
    }
    closed = calloc(1, sizeof(*closed));
    if (closed == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the end of %s", prefix);
    }
    *closed = (struct closed){
        .prefix = strdup(prefix), .status = (tdm_status)status, .text = strdup(text)};
    TAILQ_INSERT_HEAD(&board->closed, closed, link);
    board->closed_count++;
    if (closed->prefix == NULL || closed->text == NULL) {
        closed_remove(board, closed);
        return tdm__fail(TDM_E_NOMEM, "the end of %s", prefix);
    }
    answer_all(board);
    if (board->closed_count > TDM__BOARD_CLOSED_MAX) {
        closed_remove(board, TAILQ_LAST(&board->closed, closings));
    }
    return TDM_OK;
}

static tdm_status board_construct(tdm_call *call, void *self)
{
    struct board *board = self;

    (void)call;
    TAILQ_INIT(&board->notes);
    TAILQ_INIT(&board->waiters);
    TAILQ_INIT(&board->closed);
    return TDM_OK;
}

static void board_destruct(void *self)
{
    struct board *board = self;

    while (!TAILQ_EMPTY(&board->waiters)) { /* answered, when the actor was asked to end */
        waiter_remove(board, TAILQ_FIRST(&board->waiters));
    }
    while (!TAILQ_EMPTY(&board->notes)) {
        note_remove(board, TAILQ_FIRST(&board->notes));
    }
    while (!TAILQ_EMPTY(&board->closed)) {
        closed_remove(board, TAILQ_FIRST(&board->closed));
    }
}

static const struct tdm_actor_class board_class = {
    .name = "tandem.board",
    .state_bytes = sizeof(struct board),
    .construct = board_construct,
    .destruct = board_destruct,
    .methods = {{"put", board_put}, {"wait", board_wait}, {"close", board_close}},
    .asynchronous = 1,
};

__attribute__((constructor)) static void register_board(void)
{
    tdm_class_register(&board_class);
}

/* ---- those who use it ------------------------------------------------------------------- */

enum { CALLS_KEPT_MAX = 10000, LOOK_AGAIN_MS = 20, FIND_MS = 2000 };

tdm_status tdm__board_create(tdm_runtime *runtime, const char *name, int64_t timeout_ms,
                             tdm_actor **board_out)
{
    const struct tdm_actor_options options = {.name = name, .max_concurrency = CALLS_KEPT_MAX};
    tdm_actor *board;
    tdm_status status;

    TDM_TRY(tdm_actor_create(runtime, board_class.name, &options, &board, ""));
    status = tdm_actor_wait_ready(board, timeout_ms);
    if (status != TDM_OK) {
        tdm_actor_destroy(board);
        return status;
    }
    *board_out = board;
    return TDM_OK;
}

static int64_t shorter(int64_t deadline_ms, int64_t most_ms)
{
    int64_t left_ms = tdm__deadline_left(deadline_ms);

    return left_ms < 0 || left_ms > most_ms ? most_ms : left_ms;
}

tdm_status tdm__board_find(tdm_runtime *runtime, const char *name, int64_t deadline_ms,
                           tdm_actor **board_out)
{
    const struct timespec pause = {.tv_nsec = LOOK_AGAIN_MS * 1000000L};
    tdm_status status;

    for (;;) {
        status = tdm_actor_find(runtime, name, shorter(deadline_ms, FIND_MS), board_out);
        if (status != TDM_E_NOT_FOUND && status != TDM_E_TIMEOUT) {
            return status;
        }
        if (tdm__deadline_left(deadline_ms) == 0) {
            return tdm__fail(TDM_E_TIMEOUT, "nobody has opened %s", name);
        }
        (void)nanosleep(&pause, NULL);
    }
}

tdm_status tdm__board_wait(tdm_actor *board, const char *prefix, const char *after,
                           uint64_t count, tdm_ref **notes_out)
{
    return tdm_actor_call(board, "wait", notes_out, "ssu", prefix, after, count);
}

tdm_status tdm__board_read(tdm_actor *board, const char *key, int64_t deadline_ms,
                           tdm_ref **ref_out, const tdm_value **value_out)
{
    const tdm_value *notes;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm__board_wait(board, key, "", 1, &ref));
    status = tdm_get_value(ref, tdm__deadline_left(deadline_ms), &notes);
    if (status != TDM_OK) {
        (void)tdm_cancel(ref, 0);
        tdm_ref_release(ref);
        return status;
    }
    *ref_out = ref;
    *value_out = tdm_value_at(tdm_value_at(notes, 0), 1);
    return TDM_OK;
}

tdm_status tdm__board_done(tdm_ref *ref, int64_t deadline_ms)
{
    tdm_status status = tdm_get(ref, tdm__deadline_left(deadline_ms), "");

    tdm_ref_release(ref);
    return status;
}

tdm_status tdm__board_close(tdm_actor *board, const char *prefix, tdm_status status,
                            const char *text)
{
    return tdm_actor_call(board, "close", NULL, "sis", prefix, (int64_t)status, text);
}
