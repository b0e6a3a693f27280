/* update_restore.c - the record of the world of updates, lost and restored. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/update_simulator_internal.h"

#include "colocate/weights/source_state.h"

#include <string.h>

bool update_is_behind(const struct update_simulator *world)
{
    return world->driver.alive && world->record.epoch < world->driver.epoch;
}

/* ---- what the driver has heard ---------------------------------------------------------- */

static struct tdm__source_state source_state_of(const struct update_scene *scene,
                                                const struct update_restore *heard)
{
    return (struct tdm__source_state){.update = update_id('u', heard->update),
                                      .epoch = heard->epoch,
                                      .update_version = heard->update_version,
                                      .base = heard->base,
                                      .outcome = (enum tdm__update_outcome)heard->outcome,
                                      .settled = heard->settled != 0,
                                      .overwrites = update_overwrites(scene->limits),
                                      .version = heard->version,
                                      .hash = update_hash_value(heard->hash)};
}

void update_heard_begin(struct update_simulator *world)
{
    const struct update_record *record = &world->record;

    world->driver.asked_commit = 0;
    world->driver.heard = (struct update_restore){.update = record->id,
                                                  .epoch = record->epoch,
                                                  .update_version = record->id_version,
                                                  .base = record->version,
                                                  .outcome = TDM__UPDATE_UNDECIDED,
                                                  .version = record->version,
                                                  .hash = record->hash};
}

/* One that took the update over goes without. */
void update_heard_outcome(struct update_simulator *world)
{
    struct update_restore *heard = &world->driver.heard;

    if (heard->update == world->record.id) {
        heard->outcome = world->record.outcome;
        heard->version = world->record.version;
        heard->hash = world->record.hash;
    }
}

/* ---- the job ends ----------------------------------------------------------------------- */

static void end_members(struct update_scene *scene)
{
    for (uint8_t i = 0; i < scene->limits->members; i++) {
        struct update_member *member = &scene->world->members[i];

        *member = (struct update_member){.incarnation = member->incarnation};
    }
}

void update_job_ends(struct update_scene *scene)
{
    end_members(scene);
    update_driver_gives_up(&scene->world->driver);
}

bool update_ends_old_members(struct update_scene *scene)
{
    bool found = false;

    for (uint8_t i = 0; i < scene->limits->members; i++) {
        const struct update_member *member = &scene->world->members[i];

        found |= member->guard_epoch != 0 || member->version != 0;
    }
    if (!found || scene->limits->bug == UPDATE_BUG_KEEPS_OLD_MEMBERS ||
        scene->limits->bug == UPDATE_BUG_NUMBER_IN_MEMORY) {
        return false;
    }
    end_members(scene);
    return true;
}

/* Returns whether members may know an outcome that their source does not know, because they ask the
 * store themselves. */
static bool is_in_doubt(const struct update_scene *scene)
{
    const struct update_driver *driver = &scene->world->driver;

    return scene->limits->hurries > 0 && driver->heard.outcome == TDM__UPDATE_UNDECIDED &&
           driver->asked_commit && scene->limits->bug != UPDATE_BUG_RESTORES_IN_DOUBT;
}

void update_driver_meets_loss(struct update_scene *scene, enum update_driver_todo after)
{
    struct update_driver *driver = &scene->world->driver;

    if (driver->heard.update == 0 || is_in_doubt(scene)) {
        update_job_ends(scene);
        return;
    }
    driver->todo = DRIVER_RESTORES;
    driver->after = (uint8_t)after;
}

/* ---- restore ---------------------------------------------------------------------------- */

static tdm_status ask(struct update_scene *scene, const struct update_restore *restore)
{
    const struct tdm__source_state source_state = source_state_of(scene, restore);
    struct tdm__version_request request = tdm__source_state_restore_request(&source_state);
    struct tdm__member members[UPDATE_MEMBERS_MAX];
    struct tdm__member dead[UPDATE_MEMBERS_MAX];

    request.source = (struct tdm__member){update_id('s', 1), restore->source};
    request.members = members;
    request.dead = dead;
    for (uint8_t i = 0; i < scene->limits->members; i++) {
        if (restore->members[i] == 0) {
            continue;
        }
        members[request.members_count++] = update_member_id(i, restore->members[i]);
        if ((restore->dead >> i & 1) != 0) {
            dead[request.dead_count++] = update_member_id(i, restore->members[i]);
        }
    }
    return update_ask(scene, &request);
}

/* Lists one incarnation of each member: the live one, which for a settled version must also serve
 * the version. Otherwise it lists the last incarnation before that one, and marks it as dead. */
static void list_members(const struct update_scene *scene, struct update_restore *restore)
{
    const struct update_driver *driver = &scene->world->driver;

    for (uint8_t i = 0; i < scene->limits->members; i++) {
        bool lives = (driver->workers >> i & 1) != 0;
        bool serves = lives && (driver->fresh >> i & 1) == 0;
        uint8_t incarnation = driver->incarnations[i];

        if (restore->settled ? serves : lives) {
            restore->members[i] = incarnation;
        } else {
            restore->members[i] = (uint8_t)(incarnation - lives);
            restore->dead |= (uint8_t)(1U << i);
        }
    }
}

bool update_driver_restores(struct update_scene *scene, bool heard, bool repeated)
{
    struct update_simulator *world = scene->world;
    struct update_restore restore = world->driver.heard;

    restore.source = world->driver.incarnation;
    list_members(scene, &restore);
    if (scene->limits->bug == UPDATE_BUG_RESTORES_LOWER &&
        restore.outcome == TDM__UPDATE_COMMITTED) {
        restore.outcome = TDM__UPDATE_ABORTED;
        restore.version = restore.base;
        restore.hash = world->hash_of[restore.base];
    }
    if (repeated) {
        world->late_restore = restore;
    }
    if (ask(scene, &restore) != TDM_OK && heard) {
        update_job_ends(scene);
        return false;
    }
    return heard;
}

void update_late_restore_comes(struct update_scene *scene)
{
    struct update_restore restore = scene->world->late_restore;

    memset(&scene->world->late_restore, 0, sizeof(scene->world->late_restore));
    (void)ask(scene, &restore);
}
