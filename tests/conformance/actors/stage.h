/* stage.h - where the conformance suite of actors plays: a cluster, and how tests ask for
 * things in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_STAGE_H
#define TDM_TESTS_STAGE_H

#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Each world has 8 CPUs, 4 virtual GPUs and 2 licences on one node (STAGE_PRIVATE), or half of
 * the CPUs and GPUs and as many licences on each of two nodes, "first" and "second", which talk
 * TCP and share a Redis. */
enum stage_kind {
    STAGE_PRIVATE, /* a node of the driver's own */
    STAGE_CLUSTER,
    STAGE_FAULTY /* a cluster whose connection to the store drops at random */
};

/* Runs every group of tests there, or those tests whose names match argv[1]; what main()
 * returns. In a worker it becomes the actor. */
int stage_play(enum stage_kind kind, int argc, char **argv);

tdm_runtime *stage_runtime(void);
uint32_t stage_nodes(void);
/* An address of the node on which this driver is. */
const char *stage_address(void);

/* The groups; each returns how many of its tests failed. */
int conformance_creation(void);
int conformance_placement(void);
int conformance_calls(void);
int conformance_streams(void);
int conformance_references(void);
int conformance_lifetimes(void);
int conformance_restarts(void);
int conformance_state(void);
int conformance_errors(void);

/* ---- asking: all of these fail the test when what they do fails -------------------------- */

#define MUST(expression) stage_must((expression), #expression, __FILE__, __LINE__)
void stage_must(tdm_status status, const char *what, const char *file, int line);

/* An actor that is ready, constructed with one text or, for NULL, nothing.  With two nodes they
 * are put on either in turn, unless the options say where. */
tdm_actor *stage_make(const char *class_name, const struct tdm_actor_options *options,
                      const char *word);
/* Kills it and lets go. */
void stage_end(tdm_actor *actor);

/* What the call to come of it replies: an integer; or its status.  Both release `ref`. */
int64_t stage_int(tdm_ref *ref);
tdm_status stage_status(tdm_ref *ref);
/* The status of a call of a method that takes nothing; refused at once or failed later. */
tdm_status stage_try(tdm_actor *actor, const char *method);
/* Calls a method that takes nothing, or one integer. */
tdm_ref *stage_call(tdm_actor *actor, const char *method);
tdm_ref *stage_call_int(tdm_actor *actor, const char *method, int64_t argument);
/* The same while the answer is TDM_E_ACTOR_RESTARTING: of the actor's next life. */
int64_t stage_int_of_next_life(tdm_actor *actor, const char *method);
/* Fails unless tdm_error_detail() has `part` in it. */
void stage_detail_has(const char *part);

int64_t stage_pid(tdm_actor *actor);
/* Its state as tdm_list_actors() tells, "" if it is not listed. */
void stage_state(tdm_actor *actor, char state[16]);
/* Waits until it is in that state. */
void stage_await_state(tdm_actor *actor, const char *wanted);
/* How much of a resource is free in the whole cluster; the other waits until it is that much.
 */
double stage_free(const char *resource);
void stage_await_free(const char *resource, double wanted);

#endif
