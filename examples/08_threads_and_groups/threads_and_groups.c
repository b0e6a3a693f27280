/* threads_and_groups.c - methods that run in parallel, and a concurrency group that is always
 * free. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <tandem/tandem.h>

enum { FETCHES = 3 };

/* State of the actor. The threads of all concurrency groups share it, so that access needs the
 * mutex. */
struct loader {
    pthread_mutex_t mutex;
    pthread_cond_t all_here; /* Signalled when all fetches are running. */
    int inside_count;        /* Number of fetches that are running. */
};

static tdm_status loader_construct(tdm_call *call, void *self)
{
    struct loader *loader = self;

    (void)call;
    (void)pthread_mutex_init(&loader->mutex, NULL);
    (void)pthread_cond_init(&loader->all_here, NULL);
    return TDM_OK;
}

/* Method fetch(): returns once three fetches run at the same time. It would never return if they
 * ran one after the other. */
static tdm_status loader_fetch(tdm_call *call, void *self)
{
    struct loader *loader = self;

    (void)pthread_mutex_lock(&loader->mutex);
    loader->inside_count++;
    (void)pthread_cond_broadcast(&loader->all_here);
    while (loader->inside_count < FETCHES) {
        (void)pthread_cond_wait(&loader->all_here, &loader->mutex);
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    return tdm_call_reply(call, "i", (int64_t)FETCHES);
}

/* Method status(): replies with the number of running fetches. */
static tdm_status loader_status(tdm_call *call, void *self)
{
    struct loader *loader = self;
    int inside_count;

    (void)pthread_mutex_lock(&loader->mutex);
    inside_count = loader->inside_count;
    (void)pthread_mutex_unlock(&loader->mutex);
    return tdm_call_reply(call, "i", (int64_t)inside_count);
}

/* fetch() runs in the concurrency group "fetching", which has three threads. status() is in the
 * default group, which has a thread of its own. */
TDM_ACTOR_CLASS(loader, .state_bytes = sizeof(struct loader), .construct = loader_construct,
                .methods = {{"fetch", loader_fetch, "fetching"}, {"status", loader_status}},
                .concurrency_groups = {{"fetching", FETCHES}});

/* Calls status() and returns its reply. */
static int64_t ask_status(tdm_actor *loader)
{
    int64_t inside_count;
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(loader, "status", &ref, ""));
    TDM_CHECK(tdm_get(ref, 10000, "i", &inside_count));
    tdm_ref_release(ref);
    return inside_count;
}

int main(void)
{
    tdm_runtime *runtime;
    tdm_actor *loader;
    tdm_ref *fetches[FETCHES];

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "loader", NULL, &loader, ""));
    for (int i = 0; i < FETCHES - 1; i++) {
        TDM_CHECK(tdm_actor_call(loader, "fetch", &fetches[i], ""));
    }
    /* The loader replies while two fetches are still running. */
    while (ask_status(loader) < FETCHES - 1) {
    }
    (void)printf("%d fetches are under way\n", FETCHES - 1);
    TDM_CHECK(tdm_actor_call(loader, "fetch", &fetches[FETCHES - 1], ""));
    for (int i = 0; i < FETCHES; i++) {
        TDM_CHECK(tdm_get(fetches[i], 10000, "i", &(int64_t){0}));
        tdm_ref_release(fetches[i]);
    }
    (void)printf("all %d have met\n", FETCHES);

    tdm_actor_destroy(loader);
    tdm_runtime_stop(runtime);
    return 0;
}
