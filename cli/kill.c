/* kill.c - `tandem kill`: ends actors at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/runtime.h"
#include "cli/cluster.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <string.h>

static struct tdm__option options[] = {{"--address", true, NULL}, {NULL, false, NULL}};

/* Returns the only living actor that matches `word`. Returns NULL and sets the error if no actor or
 * several match. */
static const struct tdm_actor_state *choose_actor(const struct tdm_actor_state *actors,
                                                  uint32_t count, const char *word)
{
    const struct tdm_actor_state *found = NULL;
    const struct tdm_actor_state *dead = NULL;

    for (uint32_t i = 0; i < count; i++) {
        if (!tdm__cluster_actor_matches(&actors[i], word)) {
            continue;
        }
        if (strcmp(actors[i].state, "DEAD") == 0) {
            dead = &actors[i];
        } else if (found != NULL) {
            (void)tdm__fail(TDM_E_INVAL,
                            "finding the actor failed: \"%s\" may be %.12s or %.12s. Give more "
                            "digits of the id",
                            word, found->id, actors[i].id);
            return NULL;
        } else {
            found = &actors[i];
        }
    }
    if (found == NULL && dead != NULL) {
        (void)tdm__fail(TDM_E_STATE, "%.*s", (int)strcspn(dead->death_cause, "\n"),
                        dead->death_cause);
    } else if (found == NULL) {
        (void)tdm__fail(TDM_E_NOT_FOUND,
                        "finding the actor failed: no actor has the name \"%s\" or an id that "
                        "begins with it. See: tandem "
                        "list actors",
                        word);
    }
    return found;
}

/* Ends an actor and prints its name and ID. */
static tdm_status kill_actor(tdm_runtime *runtime, const struct tdm_actor_state *actor)
{
    struct tdm__actor_query_message query = {.may_restart = false};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__id_parse(actor->id, &query.actor));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_query_encode(&query, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(runtime, "actor.kill", tdm_writer_bytes(writer),
                                          TDM__CLUSTER_TIMEOUT_MS, NULL);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK) {
        (void)printf("killed %s (%.12s, pid %lld on %s)\n",
                     actor->name[0] != '\0' ? actor->name : actor->class_name, actor->id,
                     (long long)actor->pid, actor->node_name);
    }
    return status;
}

/* Returns whether the actor was chosen already, because the command line names it twice. */
static bool is_among(const struct tdm_actor_state *const *chosen, uint32_t count,
                     const struct tdm_actor_state *actor)
{
    for (uint32_t i = 0; i < count; i++) {
        if (chosen[i] == actor) {
            return true;
        }
    }
    return false;
}

/* Chooses all actors that the command line names, and then kills each one. */
static tdm_status kill_actors(tdm_runtime *runtime, const struct tdm__parsed_arguments *args)
{
    const struct tdm_actor_state *actors;
    const struct tdm_actor_state *chosen[TDM__ARGUMENTS_MAX];
    uint32_t chosen_count = 0;
    uint32_t count;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm_list_actors(runtime, TDM__CLUSTER_TIMEOUT_MS, &actors, &count, NULL));
    for (uint32_t i = 0; status == TDM_OK && i < args->operands_count; i++) {
        const struct tdm_actor_state *actor =
            choose_actor(actors, count,
                         args->operands[i]); /* All words are checked before an actor is killed. */

        status = actor == NULL ? TDM_E_INVAL : TDM_OK;
        if (actor != NULL && !is_among(chosen, chosen_count, actor)) {
            chosen[chosen_count++] = actor;
        }
    }
    for (uint32_t i = 0; status == TDM_OK && i < chosen_count; i++) {
        status = kill_actor(runtime, chosen[i]);
    }
    tdm_list_free(actors);
    return status;
}

/* Runs `tandem kill` and returns the exit code. */
static int kill_main(const struct tdm__parsed_arguments *args)
{
    tdm_runtime *runtime;
    tdm_status status = tdm__cluster_join(args, &runtime);

    return status == TDM_OK ? tdm__cluster_leave(runtime, kill_actors(runtime, args))
                            : tdm__command_failed(status);
}

const struct tdm__command tdm__command_kill = {
    .name = "kill",
    .summary = "end actors at once",
    .help = "usage: tandem kill ACTOR... [--address ADDRESS]\n\n"
            "ACTOR is a name, or at least 4 digits of an id; `tandem list actors` tells both.\n"
            "Its process gets SIGKILL; it is not restarted, and calls in flight fail.\n\n"
            "  --address  of a node; default: TANDEM_ADDRESS, else the only node here\n",
    .options = options,
    .operands_min = 1,
    .operands_max = TDM__ARGUMENTS_MAX,
    .run = kill_main};
