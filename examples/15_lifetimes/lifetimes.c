/* lifetimes.c - which actors end with their creator: children, detached actors and groups,
 * names. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

static tdm_status store_greet(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "s", "still here");
}

/* Method make(): creates a child, a detached actor and a detached placement group. The child ends
 * with this process; the other two do not. */
static tdm_status maker_make(tdm_call *call, void *self)
{
    struct tdm_actor_options own = {.name = "child"};
    struct tdm_actor_options detached = {.name = "store", .name_space = "shared", .detached = 1};
    struct tdm_placement_group_options room = {.name = "room", .detached = 1};
    const struct tdm_bundle bundles[] = {{.num_cpus = 1}, {.num_cpus = 1}};
    tdm_runtime *runtime = tdm_runtime_current();
    tdm_placement_group *group;
    tdm_actor *child;
    tdm_actor *store;

    (void)self;
    room.name_space = "shared";
    TDM_TRY(tdm_placement_group_create_with(runtime, bundles, 2, &room, 10000, &group));
    tdm_placement_group_release(group);
    TDM_TRY(tdm_actor_create(runtime, "store", &own, &child, ""));
    TDM_TRY(tdm_actor_create(runtime, "store", &detached, &store, ""));
    TDM_TRY(tdm_actor_wait_ready(child, 10000));
    TDM_TRY(tdm_actor_wait_ready(store, 10000));
    /* The handle of the child is kept: without it the child would end now. A detached actor does
     * not need its handle. */
    tdm_actor_destroy(store);
    return tdm_call_reply(call, "");
}

TDM_ACTOR_CLASS(store, .methods = {{"greet", store_greet}});
TDM_ACTOR_CLASS(maker, .methods = {{"make", maker_make}});

/* Prints whether an actor of that name can be found. */
static void print_found(tdm_runtime *runtime, const char *name)
{
    tdm_actor *actor;
    tdm_status status = tdm_actor_find(runtime, name, 5000, &actor);

    (void)printf("%s: %s\n", name, tdm_strerror(status));
    if (status == TDM_OK) {
        tdm_actor_destroy(actor);
    }
}

/* Creates an actor in the placement group that the maker left behind. The actor ends when the group
 * is removed. */
static void use_leftover_group(tdm_runtime *runtime)
{
    struct tdm_actor_options options = {.name = "guest", .num_cpus = 1, .bundle = 1};
    tdm_placement_group *room;
    tdm_actor *guest;

    TDM_CHECK(tdm_placement_group_find(runtime, NULL, "room", 5000, &room));
    (void)printf("the room has %u bundles\n", tdm_placement_group_bundles_count(room));
    options.group = room;
    TDM_CHECK(tdm_actor_create(runtime, "store", &options, &guest, ""));
    TDM_CHECK(tdm_actor_wait_ready(guest, 10000));
    print_found(runtime, "guest");
    TDM_CHECK(tdm_placement_group_remove(room, 10000));
    print_found(runtime, "guest");
    tdm_actor_destroy(guest);
}

int main(void)
{
    struct tdm_runtime_options node = TDM_RUNTIME_OPTIONS_INIT;
    struct tdm_actor_options same = {.name = "store", .get_if_exists = 1, .detached = 1};
    tdm_runtime *runtime;
    tdm_actor *maker;
    tdm_actor *store;
    tdm_ref *ref;
    const char *text;

    node.cpus = 4;
    /* The name space in which this program and its actors create and find names, unless an option
     * names another one. */
    node.name_space = "shared";
    TDM_CHECK(tdm_runtime_start(&node, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "maker", NULL, &maker, ""));
    TDM_CHECK(tdm_actor_call(maker, "make", &ref, ""));
    TDM_CHECK(tdm_get(ref, 20000, ""));
    tdm_ref_release(ref);
    print_found(runtime, "child");
    print_found(runtime, "store");

    (void)printf("the maker is killed\n");
    TDM_CHECK(tdm_actor_kill(maker, 10000));
    print_found(runtime, "child");
    print_found(runtime, "store");

    use_leftover_group(runtime);

    /* With get_if_exists the handle is to the existing actor of that name. */
    TDM_CHECK(tdm_actor_create(runtime, "store", &same, &store, ""));
    TDM_CHECK(tdm_actor_call(store, "greet", &ref, ""));
    TDM_CHECK(tdm_get(ref, 10000, "s", &text));
    (void)printf("the store says: %s\n", text);
    tdm_ref_release(ref);
    /* Destroying the handle would not end a detached actor. */
    TDM_CHECK(tdm_actor_kill(store, 10000));
    print_found(runtime, "store");

    tdm_actor_destroy(store);
    tdm_actor_destroy(maker);
    tdm_runtime_stop(runtime);
    return 0;
}
