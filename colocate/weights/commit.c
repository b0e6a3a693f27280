/* commit.c - the commit protocol of weight versions, run on the cluster's store. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/commit.h"

#include "colocate/weights/commit_record.h"
#include "runtime/error.h"
#include "runtime/store/known.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One request, from the call until its answer. */
struct question {
    struct question *next;
    struct tdm__version_request request;
    struct tdm__member *lists; /* owned: the members, then the dead */
    int64_t deadline_ms;
    tdm__version_fn *fn;
    void *arg;
    /* As the body left it last: */
    tdm_status status;
    char *detail;                      /* owned; NULL: none */
    struct tdm__version_record record; /* as it is after this request */
};

/* First come, first served. */
struct questions {
    struct question *first; /* owned */
    struct question **end;
};

/* The most models whose last record is known beyond their last question. */
enum { IDLE_LINES_MAX = 16 };

/* The questions about one model.  While it has a transaction under way it is the transaction's:
 * when `versions` is gone, it ends with it. */
struct line {
    struct line *next;
    struct tdm__versions *versions; /* NULL: closed */
    struct tdm__known *known;       /* owned: the record, where this process wrote it last */
    bool running;                   /* a transaction is under way */
    struct questions asked;         /* seen by the transaction's body */
    struct questions waiting;
    int64_t deadline_ms;               /* of the transaction */
    struct tdm__version_record record; /* the body's */
    tdm_writer *writer;                /* owned */
    char key[TDM__MODEL_NAME_BYTES_MAX + 8];
};

struct tdm__versions {
    struct tdm__loop *loop;   /* borrowed */
    struct tdm__store *store; /* borrowed */
    struct line *lines;
};

/* ---- questions -------------------------------------------------------------------------- */

static void questions_init(struct questions *questions)
{
    *questions = (struct questions){NULL, &questions->first};
}

static void questions_add(struct questions *questions, struct question *question)
{
    question->next = NULL;
    *questions->end = question;
    questions->end = &question->next;
}

/* Those of `from` whose deadline is later than `deadline_ms`, behind those that are there. */
static void questions_move_later(struct questions *questions, struct questions *from,
                                 int64_t deadline_ms)
{
    struct question *question = from->first;

    questions_init(from);
    while (question != NULL) {
        struct question *next = question->next;

        questions_add(question->deadline_ms > deadline_ms ? questions : from, question);
        question = next;
    }
}

/* All of `from`, behind those that are there. */
static void questions_move(struct questions *questions, struct questions *from)
{
    if (from->first != NULL) {
        *questions->end = from->first;
        questions->end = from->end;
    }
    questions_init(from);
}

static void question_free(struct question *question)
{
    free(question->detail);
    free(question->lists);
    free(question);
}

/* The lists travel with the question: the caller's may be gone when the body runs. */
static tdm_status copy_lists(struct question *question)
{
    struct tdm__version_request *request = &question->request;
    size_t count = (size_t)request->members_count + request->dead_count;

    question->lists = calloc(count + 1, sizeof(question->lists[0]));
    if (question->lists == NULL) {
        return tdm__fail(TDM_E_NOMEM, "lists of %zu members", count);
    }
    if (request->members_count > 0) {
        memcpy(question->lists, request->members,
               request->members_count * sizeof(question->lists[0]));
    }
    if (request->dead_count > 0) {
        memcpy(question->lists + request->members_count, request->dead,
               request->dead_count * sizeof(question->lists[0]));
    }
    request->members = question->lists;
    request->dead = question->lists + request->members_count;
    return TDM_OK;
}

static tdm_status question_make(const struct tdm__version_request *request,
                                struct question **question_out)
{
    struct question *question = calloc(1, sizeof(*question));
    tdm_status status;

    if (question == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a request about a version");
    }
    question->request = *request;
    status = copy_lists(question);
    if (status != TDM_OK) {
        question_free(question);
        return status;
    }
    *question_out = question;
    return TDM_OK;
}

static void question_answer(struct question *question, tdm_status status, const char *detail)
{
    question->fn(question->arg, status, detail, status == TDM_OK ? &question->record : NULL);
    question_free(question);
}

/* What the body found; or, where the transaction failed, that. */
static void questions_answer(struct questions *questions, tdm_status status, const char *detail)
{
    struct question *question = questions->first;

    questions_init(questions);
    while (question != NULL) {
        struct question *next = question->next;

        if (status != TDM_OK) {
            question_answer(question, status, detail);
        } else {
            question_answer(question, question->status,
                            question->detail != NULL ? question->detail : "");
        }
        question = next;
    }
}

/* ---- a transaction ---------------------------------------------------------------------- */

static void question_apply(struct question *question, struct line *line, bool *changed)
{
    free(question->detail);
    question->detail = NULL;
    question->status = tdm__version_apply_next(&line->record, &question->request, changed);
    if (question->status == TDM_OK) {
        question->record = line->record;
    } else {
        question->detail = strdup(tdm_error_detail());
    }
}

/* Whoever came while the record was being read comes along. */
static tdm_status line_body(void *arg, struct tdm__txn *txn)
{
    struct line *line = arg;
    const struct tdm__record *stored = tdm__txn_find(txn, line->key);
    bool changed = false;

    questions_move(&line->asked, &line->waiting);
    memset(&line->record, 0, sizeof(line->record));
    if (stored != NULL) {
        TDM_TRY(tdm__wrap(tdm__version_record_decode(stored->bytes, &line->record), "%s",
                          line->key));
    }
    for (struct question *question = line->asked.first; question != NULL;
         question = question->next) {
        question_apply(question, line, &changed);
    }
    if (!changed) {
        return TDM_OK;
    }
    if (tdm__id_is_none(&line->record.update.id)) { /* forgotten */
        return tdm__txn_delete(txn, line->key);
    }
    tdm_writer_clear(line->writer);
    TDM_TRY(tdm__version_record_encode(&line->record, line->writer));
    return tdm__txn_put(txn, line->key, tdm_writer_bytes(line->writer), 0);
}

static void line_done(void *arg, tdm_status status, const char *detail);

/* Who has waited too long is no reason to fail those who have just come. */
static tdm_status line_run(struct line *line)
{
    const char *pattern = line->key;
    int64_t deadline_ms = 0;

    for (const struct question *question = line->waiting.first; question != NULL;
         question = question->next) {
        deadline_ms = question->deadline_ms > deadline_ms ? question->deadline_ms : deadline_ms;
    }
    line->deadline_ms = deadline_ms;
    TDM_TRY(tdm__txn_run(line->versions->store, line->known, &pattern, 1, deadline_ms,
                         line_body, line_done, line));
    line->running = true;
    return TDM_OK;
}

static void line_free(struct line *line)
{
    for (struct line **place = line->versions == NULL ? NULL : &line->versions->lines;
         place != NULL && *place != NULL; place = &(*place)->next) {
        if (*place == line) {
            *place = line->next;
            break;
        }
    }
    tdm_writer_destroy(line->writer);
    tdm__known_destroy(line->known);
    free(line);
}

static bool has_too_many(const struct tdm__versions *versions)
{
    uint32_t idle_count = 0;

    for (const struct line *line = versions->lines; line != NULL; line = line->next) {
        idle_count += !line->running;
    }
    return idle_count > IDLE_LINES_MAX;
}

/* After a failure those who still wait fail as well, and ask again: the store is away, or the
 * record is not to be read.  But those who came with more time than it had are not out of time
 * with it. */
static void line_done(void *arg, tdm_status status, const char *detail)
{
    struct line *line = arg;
    bool is_good = status == TDM_OK;

    if (status != TDM_OK) {
        questions_move(&line->asked, &line->waiting);
    }
    if (status == TDM_E_TIMEOUT) {
        questions_move_later(&line->waiting, &line->asked, line->deadline_ms);
    }
    questions_answer(&line->asked, status, detail);
    if (line->versions == NULL || line->versions->store->closing) {
        questions_answer(&line->waiting, TDM_E_STORE, "the store is being closed");
    } else if (line->waiting.first != NULL) {
        status = line_run(line);
        if (status == TDM_OK) {
            return;
        }
        questions_answer(&line->waiting, status, tdm_error_detail());
        is_good = false;
    }
    line->running = false;
    if (!is_good || line->versions == NULL || has_too_many(line->versions)) {
        line_free(line);
    }
}

/* ---- from outside ----------------------------------------------------------------------- */

tdm_status tdm__versions_open(struct tdm__loop *loop, struct tdm__store *store,
                              struct tdm__versions **versions_out)
{
    struct tdm__versions *versions = calloc(1, sizeof(*versions));

    if (versions == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the versions of models");
    }
    *versions = (struct tdm__versions){.loop = loop, .store = store};
    *versions_out = versions;
    return TDM_OK;
}

void tdm__versions_close(struct tdm__versions *versions)
{
    if (versions == NULL) {
        return;
    }
    for (struct line *line = versions->lines, *next; line != NULL; line = next) {
        next = line->next;
        line->versions = NULL;
        questions_answer(&line->waiting, TDM_E_STORE, "the daemon is leaving");
        if (!line->running) {
            line_free(line);
        }
    }
    free(versions);
}

static tdm_status check_model(const char *model)
{
    size_t bytes = strnlen(model, TDM__MODEL_NAME_BYTES_MAX);

    if (bytes == 0 || bytes == TDM__MODEL_NAME_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a model's name has 1 to %d bytes",
                         TDM__MODEL_NAME_BYTES_MAX - 1);
    }
    for (size_t i = 0; i < bytes; i++) {
        if (model[i] <= ' ' || model[i] > '~' || model[i] == '*' || model[i] == '/') {
            return tdm__fail(TDM_E_INVAL, "model \"%s\": byte %zu is not allowed in a name",
                             model, i);
        }
    }
    return TDM_OK;
}

static struct line *find_line(const struct tdm__versions *versions, const char *key)
{
    struct line *line = versions->lines;

    while (line != NULL && strcmp(line->key, key) != 0) {
        line = line->next;
    }
    return line;
}

static tdm_status make_line(struct tdm__versions *versions, const char *key,
                            struct line **line_out)
{
    struct line *line = calloc(1, sizeof(*line));
    tdm_status status;

    if (line == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a request to %s", key);
    }
    (void)snprintf(line->key, sizeof(line->key), "%s", key);
    questions_init(&line->asked);
    questions_init(&line->waiting);
    line->versions = versions;
    line->next = versions->lines;
    versions->lines = line;
    status = tdm_writer_create(&line->writer);
    if (status == TDM_OK) {
        status = tdm__known_create(&line->known);
    }
    if (status != TDM_OK) {
        line_free(line);
        return status;
    }
    *line_out = line;
    return TDM_OK;
}

/* The question is the line's from TDM_OK on. */
static tdm_status line_ask(struct tdm__versions *versions, const char *key,
                           struct question *question)
{
    struct line *line = find_line(versions, key);
    tdm_status status;

    if (line == NULL) {
        TDM_TRY(make_line(versions, key, &line));
    }
    questions_add(&line->waiting, question);
    if (line->running) {
        return TDM_OK;
    }
    status = line_run(line);
    if (status != TDM_OK) {
        line_free(line);
    }
    return status;
}

tdm_status tdm__versions_ask(struct tdm__versions *versions, const char *model,
                             int64_t deadline_ms, const struct tdm__version_request *request,
                             tdm__version_fn *fn, void *arg)
{
    char key[TDM__MODEL_NAME_BYTES_MAX + 8];
    struct question *question;
    tdm_status status;

    TDM_TRY(check_model(model));
    (void)snprintf(key, sizeof(key), "weight/%s", model);
    TDM_TRY(question_make(request, &question));
    question->deadline_ms = deadline_ms;
    question->fn = fn;
    question->arg = arg;
    status = line_ask(versions, key, question);
    if (status != TDM_OK) {
        question_free(question);
    }
    return status;
}
