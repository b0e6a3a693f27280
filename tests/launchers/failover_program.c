/* failover_program.c - shows that actors outlive a failover of Redis, and that names are found. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The program creates an actor without a name and one with the name "kept". For each line of its
 * input it calls both by its own handles. A line other than "call" is the name of a new actor: the
 * program also finds "kept" by its name, and creates and calls that actor. It prints the process ID
 * and the number of calls of each actor that it has called. */
#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000, LINE_BYTES = 64 };

struct keeper {
    int64_t calls_count;
};

/* Method count(): replies the process ID of the actor and the number of its calls. */
static tdm_status keeper_count(tdm_call *call, void *self)
{
    struct keeper *keeper = self;

    return tdm_call_reply(call, "ii", (int64_t)getpid(), ++keeper->calls_count);
}

TDM_ACTOR_CLASS(keeper, .state_bytes = sizeof(struct keeper), .methods = {{"count", keeper_count}});

/* Calls an actor and prints its reply, with the word `label` before it. */
static void call_keeper(tdm_actor *actor, const char *label)
{
    int64_t pid;
    int64_t calls_count;
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(actor, "count", &ref, ""));
    TDM_CHECK(tdm_get(ref, TIMEOUT_MS, "ii", &pid, &calls_count));
    tdm_ref_release(ref);
    (void)printf("%s %lld %lld\n", label, (long long)pid, (long long)calls_count);
}

/* Finds an actor by its name, creates another one, and calls both. */
static void use_store(tdm_runtime *runtime, const char *name)
{
    tdm_actor *found;
    tdm_actor *created;

    TDM_CHECK(tdm_actor_find(runtime, "kept", TIMEOUT_MS, &found));
    call_keeper(found, "found");
    TDM_CHECK(tdm_actor_create(runtime, "keeper", &(struct tdm_actor_options){.name = name},
                               &created, ""));
    call_keeper(created, "new");
    tdm_actor_destroy(created);
    tdm_actor_destroy(found);
}

int main(void)
{
    char line[LINE_BYTES];
    tdm_runtime *runtime;
    tdm_actor *plain;
    tdm_actor *kept;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime)); /* Workers end inside of this call. */
    TDM_CHECK(tdm_actor_create(runtime, "keeper", NULL, &plain, ""));
    TDM_CHECK(tdm_actor_create(runtime, "keeper",
                               &(struct tdm_actor_options){.name = "kept", .max_restarts = 1},
                               &kept, ""));
    while (fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        call_keeper(plain, "plain");
        call_keeper(kept, "kept");
        if (strcmp(line, "call") != 0) {
            use_store(runtime, line);
        }
        (void)printf("done\n");
        (void)fflush(stdout);
    }
    tdm_actor_destroy(kept);
    tdm_actor_destroy(plain);
    tdm_runtime_stop(runtime);
    return 0;
}
