/* commit_session.h - numbers the commits of a writer, so that each is carried out once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_COMMIT_SESSION_H
#define TDM_REDIS_COMMIT_SESSION_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* Which commit of its writer a commit is. functions.c says how the server uses it. */
struct tdm__redis_commit_stamp {
    uint64_t session; /* Number of the writer's session, which the server has chosen. */
    uint64_t number;  /* Number of the commit among those of the writer, from 1; 0 for none. */
    /* Lowest number whose outcome the writer lacks, at most `number`. */
    uint64_t lowest;
};

/* A commit that has a stamp, and whose outcome the writer lacks. It is part of an operation. */
struct tdm__redis_numbered_commit {
    /* Links the commit into its session's list, as long as it has a number. */
    TAILQ_ENTRY(tdm__redis_numbered_commit) entry;
    /* Stamp of the commit; `number` is 0 before the commit has one, and once it is settled. */
    struct tdm__redis_commit_stamp stamp;
};

/* The session in which a writer commits, and the numbers of its commits. The store owns it. */
struct tdm__redis_commit_session {
    char writer[TDM__ID_TEXT_BYTES]; /* Name under which the server keeps the outcomes. */
    uint64_t number;      /* Number of the session at the server; 0 if one has to be opened. */
    bool is_opening;      /* Whether a session is being opened. */
    uint64_t last_commit; /* Number of the newest commit of any session; 0 before the first. */
    /* Commits with a number and without an outcome (borrowed), by number. */
    TAILQ_HEAD(, tdm__redis_numbered_commit) unsettled;
};

/* Initialises a session that has to be opened, for a writer with a random ID. */
tdm_status tdm__redis_commit_session_init(struct tdm__redis_commit_session *session);
/* Returns the lowest number whose outcome the writer lacks; the number of the next commit if there
 * is none. */
uint64_t tdm__redis_commit_session_lowest(const struct tdm__redis_commit_session *session);
/* Gives a commit its stamp in the open session, and adds the commit to the session's list. */
void tdm__redis_commit_session_stamp(struct tdm__redis_commit_session *session,
                                     struct tdm__redis_numbered_commit *commit);
/* Removes a commit from the session's list, because its outcome is known or not wanted any more. A
 * commit without a number is allowed. */
void tdm__redis_commit_session_settle(struct tdm__redis_commit_session *session,
                                      struct tdm__redis_numbered_commit *commit);
/* Notes that the server does not know the session `number`, so that a new one is opened unless that
 * has happened since. */
void tdm__redis_commit_session_forget(struct tdm__redis_commit_session *session, uint64_t number);

#endif
