/* commit_session.c - numbers the commits of a writer, so that each is carried out once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/commit_session.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stddef.h>

tdm_status tdm__redis_commit_session_init(struct tdm__redis_commit_session *session)
{
    struct tdm__id writer;

    *session = (struct tdm__redis_commit_session){.number = 0};
    TAILQ_INIT(&session->unsettled);
    TDM_TRY(tdm__id_generate(&writer));
    (void)tdm__id_text(&writer, session->writer);
    return TDM_OK;
}

uint64_t tdm__redis_commit_session_lowest(const struct tdm__redis_commit_session *session)
{
    const struct tdm__redis_numbered_commit *oldest = TAILQ_FIRST(&session->unsettled);

    return oldest == NULL ? session->last_commit + 1 : oldest->stamp.number;
}

void tdm__redis_commit_session_stamp(struct tdm__redis_commit_session *session,
                                     struct tdm__redis_numbered_commit *commit)
{
    TDM_ASSERT(session->number != 0 && commit->stamp.number == 0);
    commit->stamp.session = session->number;
    commit->stamp.number = ++session->last_commit;
    TAILQ_INSERT_TAIL(&session->unsettled, commit, entry);
    commit->stamp.lowest = tdm__redis_commit_session_lowest(session);
}

void tdm__redis_commit_session_settle(struct tdm__redis_commit_session *session,
                                      struct tdm__redis_numbered_commit *commit)
{
    if (commit->stamp.number != 0) {
        TAILQ_REMOVE(&session->unsettled, commit, entry);
        commit->stamp.number = 0;
    }
}

void tdm__redis_commit_session_forget(struct tdm__redis_commit_session *session, uint64_t number)
{
    if (session->number == number) {
        session->number = 0;
    }
}
