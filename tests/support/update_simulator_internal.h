/* update_simulator_internal.h - the parts of the world of updates, among themselves. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_UPDATE_SIMULATOR_INTERNAL_H
#define TDM_TESTS_SUPPORT_UPDATE_SIMULATOR_INTERNAL_H

#include "tests/support/update_simulator.h"

#include "colocate/weights/commit_core.h"

/* The world while something happens in it. */
struct update_scene {
    const struct update_limits *limits;
    struct update_simulator *world;
    const char *wrong; /* the first thing that may never be */
};

void update_wrong(struct update_scene *scene, const char *what);
/* What only asks for memory comes in order, once, and ends with its sender. */
bool update_may_be_late(const struct update_message *message);

/* ---- the store (update_store.c) ---- */

struct tdm__id update_id(uint8_t kind, uint8_t number);
struct tdm__member update_member_id(uint8_t index, uint8_t incarnation);
/* The number that stands for the hash of these contents. */
uint8_t update_hash(const uint8_t bytes[UPDATE_TENSORS][UPDATE_TENSOR_BYTES]);
struct tdm__hash update_hash_value(uint8_t number);
void update_fill(uint8_t weights, unsigned tensor, uint8_t bytes[UPDATE_TENSOR_BYTES]);
/* A number for the resume_log of the first `count` of these. */
uint8_t update_resume_log_sum(const uint8_t bytes[UPDATE_TENSORS][UPDATE_TENSOR_BYTES],
                              uint8_t count);
/* One atomic step of the record. */
tdm_status update_ask(struct update_scene *scene, const struct tdm__version_request *request);
/* TDM_E_NOT_FOUND, or what was decided about this update. */
tdm_status update_outcome(const struct update_simulator *world, uint8_t update,
                          enum tdm__update_outcome *outcome_out);

/* Of the store, or as it was before that lost it. */
uint8_t update_committed(const struct update_simulator *world);
/* Somebody has read that the record's version is committed. */
void update_told(struct update_simulator *world);

/* ---- a record that is lost (update_restore.c) ---- */

/* The record shows less than the driver has heard or read. */
bool update_is_behind(const struct update_simulator *world);
void update_heard_begin(struct update_simulator *world);
void update_heard_outcome(struct update_simulator *world);
/* Refused, by a record that is behind: restores it and then does `after`, or ends the job. */
void update_driver_meets_loss(struct update_scene *scene, enum update_driver_todo after);
/* True when it may do what comes after. */
bool update_driver_restores(struct update_scene *scene, bool heard, bool repeated);
void update_late_restore_comes(struct update_scene *scene);
/* A job that ends so ends its engines. */
void update_job_ends(struct update_scene *scene);
/* It starts on an empty record: members that heard of an update end.  True: there are some. */
bool update_ends_old_members(struct update_scene *scene);

/* ---- an engine (update_engine.c) ---- */

void update_engine_takes(struct update_scene *scene, uint8_t index,
                         const struct update_message *message);
void update_engine_goes_on(struct update_scene *scene, uint8_t index, bool heard);
bool update_engine_serves(const struct update_member *member);
uint8_t update_image_sum(const struct update_member *member);

/* ---- who is answered (update_simulator.c) ---- */

void update_reply_call(struct update_scene *scene, uint8_t index, uint8_t from, bool well);
void update_reply_bucket(struct update_scene *scene, uint8_t index, uint8_t from, bool well);

/* ---- driver and trainer (update_source.c) ---- */

void update_driver_starts(struct update_scene *scene);
/* The job ends; its engines do not, here: whoever comes next finds them as they are. */
void update_driver_gives_up(struct update_driver *driver);
/* All incarnations that it knows to have ended. */
uint32_t update_list_dead(const struct update_scene *scene, struct tdm__member *dead);
void update_driver_wants_update(struct update_scene *scene);
/* `repeated`: what it asks comes once more. */
void update_driver_goes_on(struct update_scene *scene, bool heard, bool repeated);
void update_driver_learns(struct update_scene *scene, uint8_t index);
void update_driver_learns_of_trainer(struct update_scene *scene);
bool update_driver_can_go_on(const struct update_simulator *world);
/* It sends requests to its engines now. */
bool update_driver_generates(const struct update_limits *limits,
                             const struct update_simulator *world);
/* Other weights than any before. */
void update_trainer_learns(struct update_simulator *world);
void update_trainer_goes_on(struct update_scene *scene, bool writes_wrong);
bool update_trainer_can_go_on(const struct update_limits *limits,
                              const struct update_simulator *world);

#endif
