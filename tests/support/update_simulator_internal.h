/* update_simulator_internal.h - functions that the files of the update simulator share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_UPDATE_SIMULATOR_INTERNAL_H
#define TDM_TESTS_SUPPORT_UPDATE_SIMULATOR_INTERNAL_H

#include "tests/support/update_simulator.h"

#include "colocate/weights/commit_core.h"

/* The simulator while it executes one event. */
struct update_scene {
    const struct update_limits *limits;
    struct update_simulator *world;
    /* The first invariant that the event has violated; NULL if it has violated none. */
    const char *wrong;
};

/* Stores the violation unless there is one already. */
void update_wrong(struct update_scene *scene, const char *what);
/* Returns true if the message may be delivered late or twice. Requests for memory arrive in order
 * and once, and end with their sender. */
bool update_may_be_late(const struct update_message *message);

/* ---- the store (update_store.c) ---- */

struct tdm__id update_id(uint8_t kind, uint8_t number);
struct tdm__member update_member_id(uint8_t index, uint8_t incarnation);
/* Returns the number that stands for the hash of these contents. */
uint8_t update_hash(const uint8_t bytes[UPDATE_TENSORS][UPDATE_TENSOR_BYTES]);
struct tdm__hash update_hash_value(uint8_t number);
void update_fill(uint8_t weights, unsigned tensor, uint8_t bytes[UPDATE_TENSOR_BYTES]);
/* Returns a number that stands for the resume log of the first `count` tensors. */
uint8_t update_resume_log_sum(const uint8_t bytes[UPDATE_TENSORS][UPDATE_TENSOR_BYTES],
                              uint8_t count);
/* Executes one request on the record, as one transaction. */
tdm_status update_ask(struct update_scene *scene, const struct tdm__version_request *request);
/* Stores the outcome of an update. TDM_E_NOT_FOUND if the record does not know it. */
tdm_status update_outcome(const struct update_simulator *world, uint8_t update,
                          enum tdm__update_outcome *outcome_out);

/* Returns the committed version of the record, or the one before the record was lost. */
uint8_t update_committed(const struct update_simulator *world);
/* Records that some process has read that the record's version is committed. */
void update_told(struct update_simulator *world);

/* ---- a record that is lost (update_restore.c) ---- */

/* Returns true if the record is older than what the driver knows. */
bool update_is_behind(const struct update_simulator *world);
void update_heard_begin(struct update_simulator *world);
void update_heard_outcome(struct update_simulator *world);
/* Handles a refusal by a record that is behind: restores it and continues with `after`, or ends the
 * job. */
void update_driver_meets_loss(struct update_scene *scene, enum update_driver_todo after);
/* Executes the driver's RESTORE. Returns true if the driver may continue with `after`. */
bool update_driver_restores(struct update_scene *scene, bool heard, bool repeated);
void update_late_restore_comes(struct update_scene *scene);
/* Ends the job together with its engines. */
void update_job_ends(struct update_scene *scene);
/* Ends the members that know of an update when the driver starts with an empty record. Returns true
 * if there were any. */
bool update_ends_old_members(struct update_scene *scene);

/* ---- an engine (update_engine.c) ---- */

/* Returns true if updates write over the weights that the engines serve. */
bool update_overwrites(const struct update_limits *limits);
void update_engine_takes(struct update_scene *scene, uint8_t index,
                         const struct update_message *message);
void update_engine_goes_on(struct update_scene *scene, uint8_t index, bool heard);
uint8_t update_image_sum(const struct update_member *member);

/* ---- delivery of replies (update_simulator.c) ---- */

void update_reply_call(struct update_scene *scene, uint8_t index, uint8_t from, bool well);
void update_reply_bucket(struct update_scene *scene, uint8_t index, uint8_t from, bool well);

/* ---- driver and trainer (update_source.c) ---- */

void update_driver_starts(struct update_scene *scene);
/* Ends the job without its engines. The next driver finds them as they are. */
void update_driver_gives_up(struct update_driver *driver);
/* Lists all incarnations that the driver knows to have ended and returns their number. */
uint32_t update_list_dead(const struct update_scene *scene, struct tdm__member *dead);
void update_driver_wants_update(struct update_scene *scene);
/* Executes the driver's next step. If `repeated` is true, its request to the store arrives
 * twice. */
void update_driver_goes_on(struct update_scene *scene, bool heard, bool repeated);
void update_driver_learns(struct update_scene *scene, uint8_t index);
void update_driver_learns_of_trainer(struct update_scene *scene);
bool update_driver_can_go_on(const struct update_simulator *world);
/* Returns true if the driver sends requests to its engines now. */
bool update_driver_generates(const struct update_limits *limits,
                             const struct update_simulator *world);
/* Gives the trainer weights that differ from all earlier ones. */
void update_trainer_learns(struct update_simulator *world);
void update_trainer_goes_on(struct update_scene *scene, bool writes_wrong);
bool update_trainer_can_go_on(const struct update_limits *limits,
                              const struct update_simulator *world);

#endif
