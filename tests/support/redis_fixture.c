/* redis_fixture.c - a loop, an embedded redis-server in a directory of its own, a store in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/redis_fixture.h"
#include "runtime/redis/store.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

void remove_tree(const char *directory)
{
    (void)nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int redis_fixture_open(struct redis_fixture *world)
{
    tdm_status status;

    *world = (struct redis_fixture){.directory = "/tmp/tandem-test-XXXXXX"};
    if (mkdtemp(world->directory) == NULL) {
        return 1;
    }
    status = tdm__loop_create(&world->base.loop);
    if (status == TDM_OK) {
        status = tdm__redis_embedded_start(world->base.loop, world->directory, &world->server);
    }
    if (status == TDM_OK) {
        status = tdm__store_redis_open(world->base.loop, tdm__redis_embedded_url(world->server),
                                       "test", 10000, &world->base.store);
    }
    if (status != TDM_OK) {
        (void)fprintf(stderr, "%s: %s\n", tdm_strerror(status), tdm_error_detail());
    }
    return status != TDM_OK;
}

void redis_fixture_close(struct redis_fixture *world)
{
    world->base.store->ops->close(world->base.store);
    tdm__redis_embedded_stop(world->server);
    tdm__loop_destroy(world->base.loop);
    remove_tree(world->directory);
}
