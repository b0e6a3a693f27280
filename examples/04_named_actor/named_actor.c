/* named_actor.c - actors find each other by name, and call each other directly. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

struct scoreboard {
    double best; /* Highest score so far. */
};

/* Method offer(f): keeps the score if it is the highest, and replies with the highest. */
static tdm_status scoreboard_offer(tdm_call *call, void *self)
{
    struct scoreboard *scoreboard = self;
    double score;

    TDM_TRY(tdm_call_unpack(call, "f", &score));
    if (score > scoreboard->best) {
        scoreboard->best = score;
    }
    return tdm_call_reply(call, "f", scoreboard->best);
}

TDM_ACTOR_CLASS(scoreboard, .state_bytes = sizeof(struct scoreboard),
                .methods = {{"offer", scoreboard_offer}});

/* Method play(f), which runs in the player's process: finds the scoreboard by name and calls it
 * directly, without the creating program in between. */
static tdm_status player_play(tdm_call *call, void *self)
{
    tdm_actor *board;
    tdm_ref *ref = NULL;
    double score;
    double best;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "f", &score));
    TDM_TRY(tdm_actor_find(tdm_runtime_current(), "board", 5000, &board));
    status = tdm_actor_call(board, "offer", &ref, "f", score);
    if (status == TDM_OK) {
        status = tdm_get(ref, 5000, "f", &best);
    }
    tdm_ref_release(ref);
    tdm_actor_destroy(board);
    TDM_TRY(status);
    return tdm_call_reply(call, "f", best);
}

TDM_ACTOR_CLASS(player, .methods = {{"play", player_play}});

int main(void)
{
    static const double scores[] = {0.25, 0.75, 0.5};
    tdm_runtime *runtime;
    tdm_actor *board;
    tdm_actor *second;
    tdm_actor *player;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "scoreboard", &(struct tdm_actor_options){.name = "board"},
                               &board, ""));
    TDM_CHECK(tdm_actor_wait_ready(board, 10000));
    TDM_CHECK(tdm_actor_create(runtime, "player", NULL, &player, ""));
    for (int i = 0; i < 3; i++) {
        tdm_ref *ref;
        double best;

        TDM_CHECK(tdm_actor_call(player, "play", &ref, "f", scores[i]));
        TDM_CHECK(tdm_get(ref, 10000, "f", &best));
        (void)printf("played %.2f, best so far %.2f\n", scores[i], best);
        tdm_ref_release(ref);
    }

    /* A name belongs to one actor at a time. It is free again when that actor has ended. */
    TDM_CHECK(tdm_actor_create(runtime, "scoreboard", &(struct tdm_actor_options){.name = "board"},
                               &second, ""));
    (void)printf("a second board: %s\n", tdm_strerror(tdm_actor_wait_ready(second, 10000)));
    tdm_actor_destroy(second);
    TDM_CHECK(tdm_actor_kill(board, 10000));
    (void)printf("the board is gone: %s\n",
                 tdm_strerror(tdm_actor_find(runtime, "board", 5000, &second)));

    tdm_actor_destroy(board);
    tdm_actor_destroy(player);
    tdm_runtime_stop(runtime);
    return 0;
}
